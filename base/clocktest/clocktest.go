// Package clocktest simulates jumps of the system's clock for tests. Durations come from the monotonic clock, which does
// not jump:
//
//	later := clocktest.Jump(time.Now(), time.Hour)
//	time.Since(later) // 0, not -1h
package clocktest

import (
	"time"
	"unsafe"
)

// wall has the fields of time.Time: bit 63 of wall marks a reading of the monotonic clock, which is then in ext, and bits
// 30 to 62 are seconds.
type wall struct {
	wall uint64
	ext  int64
	_    *time.Location
}

const secondsShift = 30

// Jump returns a copy of t whose wall clock has moved by whole seconds and whose monotonic clock is
// unchanged. If t has no monotonic reading, Jump returns t.Add(by).
func Jump(t time.Time, by time.Duration) time.Time {
	if !isMonotonic(t) {
		return t.Add(by)
	}
	fields := (*wall)(unsafe.Pointer(&t))
	fields.wall += uint64(int64(by/time.Second)) << secondsShift
	return t
}

// isMonotonic reports whether a time has a reading of the monotonic clock. Without such a reading,
// time.Sub and connection deadlines follow the wall clock.
func isMonotonic(t time.Time) bool { return (*wall)(unsafe.Pointer(&t)).wall>>63 == 1 }
