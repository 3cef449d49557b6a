package core

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Times are how long a host waits. The zero value waits for nothing and publishes at once.
type Times struct {
	// WithdrawGrace is how long a participant's connection may be gone before the host withdraws
	// it. Negative: it never does.
	WithdrawGrace time.Duration
	// RestartGrace is the same after a start, when clients first have to notice that the host is
	// back. No round ends before it is over, or all are back and have the log. Zero: the host does
	// not wait.
	RestartGrace time.Duration
	// Push and PushEach, for each participant, add up to the least time between two publications
	// of the same phase: what a publication costs grows with their square.
	Push, PushEach time.Duration
}

// DefaultGrace leaves every client time for two attempts to come back, the first of which may fall
// into the moment before its network, or the host, is there again: whoever is withdrawn earlier is
// one that lives.
const DefaultGrace = 15 * time.Second

// DefaultTimes are those of a host that nobody tells others.
var DefaultTimes = Times{WithdrawGrace: DefaultGrace, RestartGrace: DefaultGrace, Push: 50 * time.Millisecond, PushEach: 2 * time.Millisecond}

// awaitReturn gives participants of a run that goes on after a start the time to come back.
func (h *Host) awaitReturn(now Now) {
	participants := h.participants()
	if t := h.options.Times; len(participants) > 0 && t.WithdrawGrace >= 0 && t.RestartGrace > 0 {
		h.holdUntil = now.Time.Add(t.RestartGrace)
		for _, id := range participants {
			h.gone[id] = h.holdUntil.Add(-t.WithdrawGrace)
		}
	}
}

// holding reports whether ticks wait for members to come back after a start and to receive the log,
// so that no round ends because of the time in which the host was down, or served them slowly.
func (h *Host) holding(now Now) bool {
	if h.holdUntil.IsZero() {
		return false
	}
	if now.Time.Before(h.holdUntil) && slices.ContainsFunc(h.participants(), h.isAway) {
		return true
	}
	h.holdUntil = time.Time{}
	return false
}

// isAway reports whether a member cannot act yet.
func (h *Host) isAway(id identity.ID) bool {
	return !h.isLive(id) || h.options.Behind != nil && h.options.Behind(id)
}

func (h *Host) isLive(id identity.ID) bool {
	_, live := h.options.Connection(id)
	return live
}

// withdraws reports whether the host withdraws participants whose connection is gone.
func (h *Host) withdraws() bool {
	return h.options.Times.WithdrawGrace >= 0 && h.state.RunState != coordinator.Finished
}

// withdrawGone withdraws participants that had no connection for the grace period.
func (h *Host) withdrawGone(now Now) {
	if !h.withdraws() {
		return
	}
	missing := make(map[identity.ID]time.Time)
	for _, id := range h.participants() {
		since, known := h.gone[id]
		switch {
		case h.isLive(id):
		case !known:
			missing[id] = now.Time
		case now.Time.Sub(since) >= h.options.Times.WithdrawGrace:
			_ = h.Act(now, coordinator.Withdraw{Client: coordinator.ClientID(id)}) // refused: it is out already
		default:
			missing[id] = since
		}
	}
	h.gone = missing
}

// Participants returns the healthy members and the pending clients; when the run is finished those
// that were in its last epoch, as long as they are connected. They ascend.
func (h *Host) Participants() []identity.ID {
	ids := h.participants()
	slices.SortFunc(ids, func(a, b identity.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// participants returns them in the order of the state.
func (h *Host) participants() []identity.ID {
	if h.state.RunState == coordinator.Finished {
		return slices.DeleteFunc(h.Seated(), func(id identity.ID) bool { return !h.isLive(id) })
	}
	ids := make([]identity.ID, 0, len(h.state.Epoch.Clients)+len(h.state.Pending))
	for i := range h.state.Epoch.Clients {
		if c := &h.state.Epoch.Clients[i]; c.State == coordinator.Healthy {
			ids = append(ids, identity.ID(c.ID))
		}
	}
	for i := range h.state.Pending {
		ids = append(ids, identity.ID(h.state.Pending[i].ID))
	}
	return ids
}

// Due returns how long nothing is due unless somebody acts, connects or leaves: no tick, no
// withdrawal, and nothing to publish that had to wait.
func (h *Host) Due(now Now) time.Duration {
	sleep := time.Duration(1<<63 - 1)
	wakeAt := func(at time.Time) { sleep = min(sleep, at.Sub(now.Time)) }
	if !h.publishAt.IsZero() {
		wakeAt(h.publishAt)
	}
	if h.withdraws() {
		for _, since := range h.gone {
			wakeAt(since.Add(h.options.Times.WithdrawGrace))
		}
	}
	if !h.holdUntil.IsZero() {
		wakeAt(h.holdUntil)
		return sleep
	}
	if at, ok := h.options.Rules.Due(h.state, now.Clock); ok {
		left := min(at-now.Clock, coordinator.MaxTime) // which fits into a Duration
		sleep = min(sleep, time.Duration(left)*time.Millisecond)
	}
	return sleep
}

// Sleep returns how long a host sleeps at most: until something is due, and no longer than a
// beat, since the clock may be set.
func (h *Host) Sleep(now Now, beat time.Duration) time.Duration {
	return max(time.Millisecond, min(h.Due(now), beat)) // and not at once, should the clock not get on
}

// Holds reports whether the host waits for members to come back after a start.
func (h *Host) Holds() bool { return !h.holdUntil.IsZero() }
