package client

import (
	"maps"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/tally"
)

// leastWitnessWait is the minimum time that a witness that holds the results of two thirds of the
// awaited trainers waits for the other results. If the held results needed more than four times as
// long, the wait is a quarter of that time.
const leastWitnessWait = 2 * time.Second

// pace measures how long members need for a result. With a lag of two rounds members train ahead: a
// member whose result is here when the round starts may have started a whole round before. The time
// since the round's start therefore does not show how long the others need.
type pace struct {
	opened time.Time                              // start of the round
	begun  map[coordinator.ClientID]time.Time     // when a trainer could start, if that was before opened
	bound  map[coordinator.ClientID]bool          // trainers without a batch in the round before, which may have started later than that
	came   map[coordinator.ClientID]time.Time     // when a trainer's result arrived
	need   map[coordinator.ClientID]time.Duration // time for a result, in the newest round that shows it
}

// newPace starts measuring a round before which no member trains ahead.
func newPace(opened time.Time) pace {
	return pace{
		opened: opened, begun: make(map[coordinator.ClientID]time.Time), bound: make(map[coordinator.ClientID]bool),
		came: make(map[coordinator.ClientID]time.Time), need: make(map[coordinator.ClientID]time.Duration),
	}
}

// follow takes into account that trainers may have started during the previous round.
func (p *pace) follow(before *roundState, slots []tally.Slot) {
	trained := make(map[coordinator.ClientID]bool)
	for i := range before.Slots {
		trained[before.Slots[i].Owner] = true
	}
	for i := range slots {
		id := slots[i].Owner
		came, delivered := before.pace.came[id]
		switch {
		case delivered && came.After(before.pace.opened):
			p.begun[id] = came
		case delivered || !trained[id]:
			p.begun[id] = before.pace.opened
		}
		p.bound[id] = !trained[id]
	}
	maps.Copy(p.need, before.pace.need)
}

// see records which results are here now.
func (p *pace) see(t *tally.Tally, now time.Time) {
	for i := range t.Slots {
		if id := t.Slots[i].Owner; t.HeldOf(&t.Slots[i]) != nil {
			p.arrived(id, now)
		}
	}
}

// arrived records that a trainer's result is here.
func (p *pace) arrived(id coordinator.ClientID, now time.Time) {
	if _, known := p.came[id]; known {
		return
	}
	p.came[id] = now
	since, ahead := p.begun[id]
	if !ahead {
		p.need[id] = now.Sub(p.opened)
		return
	}
	need := now.Sub(since)
	before, known := p.need[id]
	if !known {
		before = p.typical()
	}
	// If a result may have been ready before the round, or its trainer may have started later, this
	// time is an upper bound of the training. Without this rule, a member that slows rounds would
	// make all trainings seem longer.
	if before > 0 && (p.bound[id] || p.opened.Sub(since) >= before) {
		need = min(need, max(before, now.Sub(p.opened)))
	}
	p.need[id] = need
}

// typical returns how long the fastest two thirds of the epoch's trainers needed. It is zero if
// nothing is known.
func (p *pace) typical() time.Duration {
	if len(p.need) == 0 {
		return 0
	}
	return quickest(slices.Collect(maps.Values(p.need)), assign.Quorum(len(p.need)))
}

// quickest returns the longest of the count shortest times.
func quickest(needs []time.Duration, count int) time.Duration {
	slices.Sort(needs)
	return needs[count-1]
}

// witnessWait returns how long a witness waits for the last third of the results, if all trainers
// start when the round starts.
func (l *roundState) witnessWait() time.Duration {
	return max(leastWitnessWait, l.most.Sub(l.opened)/4)
}

// deadline returns the time until which a witness waits for missing results, when it has held. A
// trainer may start as late as the round, and then has as long as most needed and a quarter of
// that. "Most" means both two thirds of the round's trainers and two thirds of the trainers of the
// epoch, because a round may have many slow trainers.
func (l *roundState) deadline(held []coordinator.ClientID, quorum int) time.Time {
	needs := make([]time.Duration, len(held))
	for i, id := range held {
		needs[i] = l.pace.need[id]
	}
	need := min(quickest(needs, quorum), l.pace.typical())
	until, other := l.most.Add(l.witnessWait()), l.opened.Add(need+max(leastWitnessWait, need/4))
	if other.After(until) {
		return other
	}
	return until
}
