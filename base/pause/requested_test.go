package pause_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

func TestRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		date := func(after time.Duration) string { return time.Now().Add(after).UTC().Format(http.TimeFormat) }
		for text, want := range map[string]time.Duration{
			"": 0, "3": 3 * time.Second, "0": 0, "-1": 0, "soon": 0, "99999999999": 0, "86400": 24 * time.Hour,
			date(5 * time.Second): 5 * time.Second, date(-time.Hour): 0,
		} {
			if got := pause.Requested(http.Header{"Retry-After": {text}}); got != want {
				t.Errorf("%q: %v, want %v", text, got, want)
			}
		}
		if got := pause.Requested(http.Header{}); got != 0 {
			t.Errorf("without a header: %v", got)
		}
	})
}

// TestRequestedAndClock checks that a requested pause does not depend on the clock of this machine,
// which may differ from the server's clock in either direction.
func TestRequestedAndClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			server := time.Now().Add(ahead).UTC()
			answer := http.Header{"Date": {server.Format(http.TimeFormat)}, "Retry-After": {server.Add(7 * time.Second).Format(http.TimeFormat)}}
			if got := pause.Requested(answer); got != 7*time.Second {
				t.Errorf("%v, want 7s", got)
			}
		})
	}
}
