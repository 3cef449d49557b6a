package core

import "time"

// Leave is the graceful leave of a member. It stops training, applies the counted results that are
// available, reports the model that it holds, and withdraws. In the zero value the member stays.
type Leave struct {
	since, until time.Time     // zero: the member stays
	copied       time.Duration // time of the end of the newest copy, relative to since
	said         time.Duration // time of the newest reminder, relative to since; zero: none
}

// Copying, hashing and writing a large model takes longer than a member otherwise needs to leave. If
// such work is in progress, a leaving member waits for as long as a slow machine needs, which
// processes SlowHash bytes per second, but at most longestLeave. It logs this every leaveReminder.
const (
	SlowHash      = 64 << 20
	longestLeave  = time.Minute
	leaveReminder = 5 * time.Second
)

// Begin begins to leave within a time limit.
func (l *Leave) Begin(now time.Time, limit time.Duration) { l.since, l.until = now, now.Add(limit) }

// Begun reports whether the member leaves.
func (l *Leave) Begun() bool { return !l.until.IsZero() }

// late reports whether the time limit is over, so that no new work starts.
func (l *Leave) late(now time.Time) bool { return !now.Before(l.until) }

// Hurry makes the time limit end now.
func (l *Leave) Hurry(now time.Time) { l.until = now }

// awaitsOutcome reports whether the member still waits for the outcome of a round that it has
// witnessed. The second half of the time to leave is reserved for reporting the model.
func (l *Leave) awaitsOutcome(now time.Time) bool { return now.Sub(l.since) < l.until.Sub(l.since)/2 }

// Extend reports whether the member should stay after its time limit: it is still copying a model
// (copying), or hashing or writing one or has one to report (working). The extra time is in proportion
// to the bytes of the model, and ends longestLeave after the start. limit is the time from the start.
func (l *Leave) Extend(now time.Time, copying, working bool, bytes int) (limit time.Duration, stays bool) {
	passed, limit := now.Sub(l.since), longestLeave
	if copying { // the number of bytes is known afterwards
		l.copied = passed
	} else {
		limit = min(limit, l.copied+max(l.until.Sub(l.since), time.Duration(bytes/SlowHash)*time.Second))
	}
	return limit, (copying || working) && passed < limit
}

// remind reports whether to log now that the member stays, and the time since it began to leave.
func (l *Leave) remind(now time.Time) (passed time.Duration, due bool) {
	passed = now.Sub(l.since)
	if due = l.said == 0 || passed-l.said >= leaveReminder; due {
		l.said = passed
	}
	return passed, due
}
