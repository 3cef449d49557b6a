package solana

import (
	"time"

	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/core/coordinator"
)

// lastOfTurn is the last rank with a turn. Clients after it wait until all earlier ranks had ample
// time.
const lastOfTurn = 8

// maxTicks limits the ticks of one transaction. Several ticks are useful if a phase that begins ends
// at once.
const maxTicks = 3

// rank returns a client's place in the order of paying for ticks; 0 pays first. Members come before
// pending clients. Both lists rotate with the sequence number. A client in neither list has no
// rank.
func rank(s *coordinator.State, id coordinator.ClientID, sequence uint64) (r int, ok bool) {
	var members, pending []coordinator.ClientID
	for i := range s.Epoch.Clients {
		if s.Epoch.Clients[i].State == coordinator.Healthy {
			members = append(members, s.Epoch.Clients[i].ID)
		}
	}
	for i := range s.Pending {
		pending = append(pending, s.Pending[i].ID)
	}
	if i := index(members, id); i >= 0 {
		return place(i, len(members), sequence), true
	}
	if i := index(pending, id); i >= 0 {
		return len(members) + place(i, len(pending), sequence), true
	}
	return 0, false
}

func place(i, n int, sequence uint64) int { return int((uint64(i) + sequence) % uint64(n)) }

func index(ids []coordinator.ClientID, id coordinator.ClientID) int {
	for i := range ids {
		if ids[i] == id {
			return i
		}
	}
	return -1
}

// waitOfRank returns how long a rank waits for the ranks before it.
func waitOfRank(rank int, turn, late time.Duration) time.Duration {
	if rank <= lastOfTurn {
		return time.Duration(rank) * turn
	}
	return late + time.Duration(rank-lastOfTurn-1)*turn
}

// needsDraw reports whether a tick in this state needs a draw of the chain, as in the program.
func needsDraw(s *coordinator.State) bool {
	switch s.RunState {
	case coordinator.WaitingForMembers, coordinator.Warmup, coordinator.RoundWitness:
		return true
	}
	return false
}

// isArmed reports whether a tick was sent that still waits for its draw and has not expired.
func isArmed(armed, slot uint64) bool {
	return armed != 0 && (slot <= armed || slot-armed <= program.DrawForgotten)
}

// tickPlan returns the number of useful ticks in one transaction that lands in slot or later, at
// the chain's time now. It is 0 if nothing is due, or if the due tick has to wait for its draw.
func tickPlan(s *coordinator.State, now, armed, slot uint64) int {
	state := s.Clone()
	now = notBefore(s, now)
	for n := range maxTicks {
		if at, ok := state.Due(now); !ok || at > now {
			return n
		}
		if needsDraw(&state) {
			if isArmed(armed, slot) && slot <= armed+program.DrawWait {
				return n
			}
			return n + 1 // this tick starts the wait for its draw, or its draw decides what is due next
		}
		if !state.Tick(now, [32]byte{}) {
			return n
		}
		armed = 0
	}
	return maxTicks
}

// notBefore returns now, but at least the state's time. The chain's clock never goes back, but the
// estimate of its time may be up to a second late. If the state's time were in the future,
// everything would seem to be due at once.
func notBefore(s *coordinator.State, now uint64) uint64 {
	return max(now, s.StateStart, s.MinimumSince, s.Epoch.StartTime)
}

// view is the known state of the run.
type view struct {
	state *coordinator.State // never modified
	claim claim
	armed uint64
	slot  uint64    // slot in which a quorum showed it
	since time.Time // when state and armed became known
	chain uint64    // the chain's time at since
}

// nextTick returns when a client with a rank should check whether a tick is needed. ok is false if
// only an action can make one necessary.
func nextTick(v *view, c *clock, rank int, now time.Time, pace Pace, jitter time.Duration) (at time.Time, ok bool) {
	known := notBefore(v.state, v.chain)
	due, ok := v.state.Due(known)
	if !ok {
		return time.Time{}, false
	}
	at = v.since
	if due > known {
		at = c.until(due, now)
	}
	if needsDraw(v.state) && isArmed(v.armed, c.slot(now)) {
		if drawn := c.untilSlot(v.armed+program.DrawWait+1, now); drawn.After(at) {
			at = drawn
		}
	}
	if at.Before(v.since) {
		at = v.since
	}
	return at.Add(waitOfRank(rank, pace.Turn, pace.Late) + jitter), true
}

// lookout is a client's memory of its checks whether a tick is needed.
type lookout struct {
	claim claim // of the last checked view
	armed uint64
	again time.Time // earliest time of the next check of that view
	blind bool      // no endpoint answered the last check
	back  time.Time // when an endpoint answered again
}

// since returns the time from which the clients take turns to tick. If this client's endpoints were
// unreachable, this is the time at which they answered again: other clients had lost their
// connection too, and all of them would tick at once.
func (l *lookout) since(v *view) time.Time {
	if v.since.Before(l.back) {
		return l.back
	}
	return v.since
}

// at returns the time of the next check. The parameter at is the start of the client's turn.
func (l *lookout) at(v *view, at time.Time) time.Time {
	if l.claim == v.claim && l.armed == v.armed && (l.blind || at.Before(l.again)) {
		return l.again
	}
	return at
}

// note records the result of a check, and reports whether it is still the client's turn.
func (l *lookout) note(v *view, rank int, looked bool, now time.Time, wait time.Duration) bool {
	regained := l.blind && looked && l.claim == v.claim && l.armed == v.armed
	l.claim, l.armed, l.again, l.blind = v.claim, v.armed, now.Add(wait), !looked
	if regained {
		l.back = now
	}
	return looked && (!regained || rank == 0)
}
