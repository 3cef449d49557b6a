package core

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Times configures how long a host waits. With the zero value it never waits and publishes at once.
type Times struct {
	// WithdrawGrace is how long a participant may be disconnected before the host withdraws it. If
	// negative, the host never withdraws participants.
	WithdrawGrace time.Duration
	// RestartGrace replaces WithdrawGrace after a start of the host, when clients first have to
	// detect that the host is back. No round ends until RestartGrace is over, or until all clients
	// are back and have the log. Zero disables the wait.
	RestartGrace time.Duration
	// Push, plus PushEach for each participant, is the minimum time between two publications within
	// a phase. The cost of a publication grows with the square of the number of participants.
	Push, PushEach time.Duration
}

// DefaultGrace gives a client time for two reconnection attempts. The first may fail because the
// network or the host is not back yet. A shorter grace would withdraw live clients.
const DefaultGrace = 15 * time.Second

// DefaultTimes are the default Times of a host.
var DefaultTimes = Times{WithdrawGrace: DefaultGrace, RestartGrace: DefaultGrace, Push: 50 * time.Millisecond, PushEach: 2 * time.Millisecond}

// awaitReturn gives participants of a resumed run time to reconnect.
func (h *Host) awaitReturn(now Now) {
	participants := h.participants()
	if t := h.options.Times; len(participants) > 0 && t.WithdrawGrace >= 0 && t.RestartGrace > 0 {
		h.holdUntil = now.Time.Add(t.RestartGrace)
		for _, id := range participants {
			h.gone[id] = h.holdUntil.Add(-t.WithdrawGrace)
		}
	}
}

// holding reports whether ticks wait for members to reconnect and to receive the log after a start.
// The wait prevents rounds from ending because the host was down or answered slowly.
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

// isAway reports whether a member cannot act yet: it is disconnected or lacks the log.
func (h *Host) isAway(id identity.ID) bool {
	return !h.isLive(id) || h.options.Behind != nil && h.options.Behind(id)
}

func (h *Host) isLive(id identity.ID) bool {
	_, live := h.options.Connection(id)
	return live
}

// withdraws reports whether the host withdraws disconnected participants.
func (h *Host) withdraws() bool {
	return h.options.Times.WithdrawGrace >= 0 && h.state.RunState != coordinator.Finished
}

// withdrawGone withdraws participants that were disconnected for the whole grace period.
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
			_ = h.Act(now, coordinator.Withdraw{Client: coordinator.ClientID(id)}) // refused if the client already left
		default:
			missing[id] = since
		}
	}
	h.gone = missing
}

// Participants returns the keys of the healthy members and the pending clients, in ascending order.
// In a finished run it returns the connected members of the last epoch instead.
func (h *Host) Participants() []identity.ID {
	ids := h.participants()
	slices.SortFunc(ids, func(a, b identity.ID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// participants returns the same keys as Participants, in the order of the state.
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

// Due returns the time until the next tick, withdrawal or delayed publication, provided that no client
// acts, connects or disconnects before that time.
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
		left := min(at-now.Clock, coordinator.MaxTime) // so that it fits into a Duration
		sleep = min(sleep, time.Duration(left)*time.Millisecond)
	}
	return sleep
}

// Sleep returns the maximum time to sleep: the time until Due, but at most beat, because the system's
// clock may be changed meanwhile.
func (h *Host) Sleep(now Now, beat time.Duration) time.Duration {
	return max(time.Millisecond, min(h.Due(now), beat)) // never 0, in case the clock stands still
}

// Holds reports whether the host waits for members to reconnect after a start.
func (h *Host) Holds() bool { return !h.holdUntil.IsZero() }
