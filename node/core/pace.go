package core

import (
	"maps"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// LeastWitnessWait is the minimum time for which a witness waits for the missing results once it holds
// the results of two thirds of the awaited trainers. In long rounds, the wait is a quarter of the time
// that these results needed.
const LeastWitnessWait = 2 * time.Second

// pace measures how long members need for a result. With a lag of two rounds, members may start to
// train during the previous round. The time from the start of a round to a result is therefore not
// the time that its trainer needed, and pace also estimates when the trainer could start.
type pace struct {
	opened time.Time                              // start of the round
	begun  map[coordinator.ClientID]time.Time     // earliest start of a trainer, if that was before opened
	bound  map[coordinator.ClientID]bool          // trainers without a batch in the previous round: they may have started later than begun
	came   map[coordinator.ClientID]time.Time     // when a trainer's result arrived
	need   map[coordinator.ClientID]time.Duration // time that a trainer needed, from the newest round that shows it
	most   map[coordinator.ClientID]time.Duration // shortest time in which a trainer with unknown need trained and waited for a round

	guessed bool // the round waited because of a guess
	guesses int  // number of earlier rounds of the epoch that did
}

// maxGuesses is the maximum number of rounds of an epoch that wait because of a guess. Malicious members
// could otherwise use the guess in all rounds of an epoch.
const maxGuesses = 8

// newPace returns the pace of a round that starts now. It assumes that no trainer started earlier; see
// ahead.
func newPace(opened time.Time) pace {
	return pace{
		opened: opened, begun: make(map[coordinator.ClientID]time.Time), bound: make(map[coordinator.ClientID]bool),
		came: make(map[coordinator.ClientID]time.Time), need: make(map[coordinator.ClientID]time.Duration), most: make(map[coordinator.ClientID]time.Duration),
	}
}

// ahead takes into account that trainers may have started during the previous round.
func (p *pace) ahead(before *pace, trainersBefore, trainers []coordinator.ClientID) {
	trained := make(map[coordinator.ClientID]bool)
	for _, id := range trainersBefore {
		trained[id] = true
	}
	for _, id := range trainers {
		came, delivered := before.came[id]
		switch {
		case delivered && came.After(before.opened):
			p.begun[id] = came
		case delivered || !trained[id]:
			p.begun[id] = before.opened
		}
		p.bound[id] = !trained[id]
	}
}

// follow takes over what the epoch's earlier rounds showed.
func (p *pace) follow(before *pace) {
	maps.Copy(p.need, before.need)
	maps.Copy(p.most, before.most)
	p.guesses = before.guesses
	if before.guessed {
		p.guesses++
	}
}

// arrived records that a trainer's result has arrived.
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
	// If the result may have been ready before the round, or its trainer may have started later, the
	// trainer needed at most this time. Without this rule, a member that makes rounds longer would
	// make all trainings seem longer. If the trainer's need is unknown, it remains unknown, because the
	// trainer may be slower than most.
	if before > 0 && (p.bound[id] || p.opened.Sub(since) >= before) {
		if !known && need > before {
			if most, waited := p.most[id]; !p.bound[id] && (!waited || need < most) {
				p.most[id] = need
			}
			return
		}
		need = min(need, max(before, now.Sub(p.opened)))
	}
	p.need[id] = need
}

// typical returns how long the fastest two thirds of the trainers with known needs needed. It is zero
// if no need is known.
func (p *pace) typical() time.Duration {
	if len(p.need) == 0 {
		return 0
	}
	return quickest(slices.Collect(maps.Values(p.need)), assign.Quorum(len(p.need)))
}

// expected returns how long two thirds of the members need, or if that is unknown, a guess, so that
// slower members can show their needs. A member whose need is unknown counts as slower than all others.
func (p *pace) expected(members []coordinator.ClientID) (need time.Duration, guessed bool) {
	var needs []time.Duration
	for _, id := range members {
		if need, known := p.need[id]; known {
			needs = append(needs, need)
		} else if most, waited := p.most[id]; waited {
			needs = append(needs, most)
		}
	}
	guess := p.typical() * 8 / 5
	if count := max(1, assign.Quorum(len(members))); len(needs) >= count {
		return min(guess, quickest(needs, count)), false
	}
	return guess, true
}

// quickest returns the count-th shortest of the times.
func quickest(needs []time.Duration, count int) time.Duration {
	slices.Sort(needs)
	return needs[count-1]
}
