package client

import (
	"maps"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/tally"
)

// leastWitnessWait is how long a witness that holds the results of two thirds of the awaited trainers
// waits for the other results at least. If the held results needed more than four times as long, the wait is a quarter
// of that time.
const leastWitnessWait = 2 * time.Second

// pace measures how long members need for a result. With a lag of two rounds members train ahead: a member whose
// result is here when the round starts may have begun a whole round before. So the time since the round's start does
// not tell how long the others need.
type pace struct {
	opened time.Time                              // the round
	begun  map[coordinator.ClientID]time.Time     // when a trainer could begin, if that was before opened
	bound  map[coordinator.ClientID]bool          // it had nothing to train in the round before, and may have begun later than that
	came   map[coordinator.ClientID]time.Time     // when a trainer's result was here
	need   map[coordinator.ClientID]time.Duration // in the newest round that shows it
}

// newPace begins to measure a round before which no member trains ahead.
func newPace(opened time.Time) pace {
	return pace{
		opened: opened, begun: make(map[coordinator.ClientID]time.Time), bound: make(map[coordinator.ClientID]bool),
		came: make(map[coordinator.ClientID]time.Time), need: make(map[coordinator.ClientID]time.Duration),
	}
}

// follow takes into account that trainers may have begun during the round before.
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

// see notes which results are here now.
func (p *pace) see(t *tally.Tally, now time.Time) {
	for i := range t.Slots {
		if id := t.Slots[i].Owner; t.HeldOf(&t.Slots[i]) != nil {
			p.arrived(id, now)
		}
	}
}

// arrived notes that a trainer's result is here.
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
	// If a result may have been ready before the round, or its trainer may have begun later, this time is an upper bound
	// of the training. Without this, a member that slows rounds would make all trainings seem longer.
	if before > 0 && (p.bound[id] || p.opened.Sub(since) >= before) {
		need = min(need, max(before, now.Sub(p.opened)))
	}
	p.need[id] = need
}

// typical returns how long two thirds of the epoch's trainers needed, the quickest first. It is zero if nothing is known.
func (p *pace) typical() time.Duration {
	if len(p.need) == 0 {
		return 0
	}
	return quickest(slices.Collect(maps.Values(p.need)), assign.Quorum(len(p.need)))
}

// quickest returns the longest of the given number of shortest times.
func quickest(needs []time.Duration, count int) time.Duration {
	slices.Sort(needs)
	return needs[count-1]
}

// witnessWait is how long a witness waits for a third of the results when it has the others, if all begin to train
// when the round starts.
func (l *roundState) witnessWait() time.Duration {
	return max(leastWitnessWait, l.most.Sub(l.opened)/4)
}

// deadline returns until when a witness waits for results that it lacks, when it has held. A trainer may begin as late
// as the round starts, and then has as long as most needed and a quarter of that. Most are both two thirds of the
// round's trainers and two thirds of the trainers of the epoch: a round may have many slow ones.
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
