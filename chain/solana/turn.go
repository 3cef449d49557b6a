package solana

import (
	"time"

	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/core/coordinator"
)

// lastOfTurn is the last rank that waits its turn. Those behind it wait until all before had
// a good while.
const lastOfTurn = 8

// maxTicks bounds the ticks of one transaction: a phase that ends at once, and the next one.
const maxTicks = 3

// rank returns whose turn it is to pay for ticks: 0 pays first. Members come before those that
// wait, and each list begins elsewhere at every sequence number. A client in neither has none.
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

// waitOfRank returns how long a rank waits for those before it.
func waitOfRank(rank int, turn, late time.Duration) time.Duration {
	if rank <= lastOfTurn {
		return time.Duration(rank) * turn
	}
	return late + time.Duration(rank-lastOfTurn-1)*turn
}

// needsDraw reports whether a tick waits for a draw of the chain: the program's rule.
func needsDraw(s *coordinator.State) bool {
	switch s.RunState {
	case coordinator.WaitingForMembers, coordinator.Warmup, coordinator.RoundWitness:
		return true
	}
	return false
}

// isArmed reports whether a tick has been sent that waits for its draw, in time.
func isArmed(armed, slot uint64) bool {
	return armed != 0 && (slot <= armed || slot-armed <= program.DrawForgotten)
}

// tickPlan returns how many ticks make sense in one transaction that lands in slot or later, at the
// chain's time now: 0 when nothing is due, or when what is due has to wait for its draw.
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
			return n + 1 // it arms, or it moves the run to where the draw decides what is due
		}
		if !state.Tick(now, [32]byte{}) {
			return n
		}
		armed = 0
	}
	return maxTicks
}

// notBefore returns a time that is not before the state's own: the chain's clock never goes back,
// what is known of it is up to a second late, and a state of a time to come would be due at once.
func notBefore(s *coordinator.State, now uint64) uint64 {
	return max(now, s.StateStart, s.MinimumSince, s.Epoch.StartTime)
}

// view is what is known of the run.
type view struct {
	state *coordinator.State // nobody modifies it
	claim claim
	armed uint64
	slot  uint64    // in which a quorum showed it
	since time.Time // when state and armed became known
	chain uint64    // the chain's time then
}

// nextTick returns when a client of that rank is to look whether a tick is needed; ok is false
// when only actions change that.
func nextTick(v *view, c *clock, rank int, now time.Time, turn, late, jitter time.Duration) (at time.Time, ok bool) {
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
	return at.Add(waitOfRank(rank, turn, late) + jitter), true
}

// lookout is what a client remembers of its looks whether a tick is needed.
type lookout struct {
	claim claim // of the view that it looked for last
	armed uint64
	again time.Time // when it is to look for that view again, at the soonest
	blind bool      // no endpoint told anything then
	back  time.Time // when one did, after a time without
}

// since returns from when on turns count. When endpoints are back, all who were cut off are: turns
// begin anew.
func (l *lookout) since(v *view) time.Time {
	if v.since.Before(l.back) {
		return l.back
	}
	return v.since
}

// at returns when to look, if at is the own turn.
func (l *lookout) at(v *view, at time.Time) time.Time {
	if l.claim == v.claim && l.armed == v.armed && (l.blind || at.Before(l.again)) {
		return l.again
	}
	return at
}

// note takes how a look ended, and reports whether it is the own turn still.
func (l *lookout) note(v *view, rank int, looked bool, now time.Time, wait time.Duration) bool {
	regained := l.blind && looked && l.claim == v.claim && l.armed == v.armed
	l.claim, l.armed, l.again, l.blind = v.claim, v.armed, now.Add(wait), !looked
	if regained {
		l.back = now
	}
	return looked && (!regained || rank == 0)
}
