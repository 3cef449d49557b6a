package pause

import (
	"net/http"
	"strconv"
	"time"
)

// Requested returns the pause that a server requests with the header Retry-After of its answer: a
// number of seconds, or a date. It returns 0 if the server requests none. It compares a date with
// the server's own clock, the header Date, because the clock of this machine may be wrong by hours.
func Requested(answer http.Header) time.Duration {
	text := answer.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(answer.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now))
}
