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
	opened time.Time                          // start of the round
	begun  map[coordinator.ClientID]time.Time // earliest start of a trainer, if that was before opened
	bound  map[coordinator.ClientID]bool      // trainers without a batch in the previous round: they may have started later than begun
	came   map[coordinator.ClientID]time.Time // when a trainer's result arrived
	need   map[coordinator.ClientID]need      // time that a trainer needed, from the newest round that shows it
	most   map[coordinator.ClientID]need      // shortest time in which a trainer with unknown need trained and waited for a round
	batch  map[coordinator.ClientID]uint64    // size of a trainer's batch, as in full
	full   map[coordinator.ClientID]uint64    // assign.FullBatches of the members

	joined  bool // see Part.Join
	guessed bool // the round waited because of a guess
	guesses int  // number of earlier rounds of the epoch that did
}

// need is the time that a member needed for a batch, and the size of the batch as in assign.FullBatches.
type need struct {
	time  time.Duration
	batch uint64 // 0: unknown
}

// inProportion returns the time that the member needs for a batch of a size, in proportion to the size.
func (n need) inProportion(batch uint64) time.Duration {
	if n.batch == 0 || batch == 0 {
		return n.time
	}
	return time.Duration(float64(n.time) * float64(batch) / float64(n.batch))
}

// of returns the time that a witness expects for a batch of a size. A smaller batch may take as long,
// because the time to send a result does not depend on the size of its batch.
func (n need) of(batch uint64) time.Duration { return max(n.time, n.inProportion(batch)) }

// maxGuesses is the maximum number of rounds of an epoch that wait because of a guess. Malicious members
// could otherwise use the guess in all rounds of an epoch.
const maxGuesses = 8

// newPace returns the pace of a round that starts now. It assumes that no trainer started earlier; see
// ahead.
func newPace(opened time.Time) pace {
	return pace{
		opened: opened, begun: make(map[coordinator.ClientID]time.Time), bound: make(map[coordinator.ClientID]bool),
		came: make(map[coordinator.ClientID]time.Time), need: make(map[coordinator.ClientID]need), most: make(map[coordinator.ClientID]need),
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

// divide takes into account that batches have different sizes. A witness otherwise finds members late
// only because their batches are larger than most.
func (p *pace) divide(members []coordinator.ClientID, levels []uint8, batches []assign.Assignment) {
	p.batch, p.full = make(map[coordinator.ClientID]uint64), make(map[coordinator.ClientID]uint64)
	for i, size := range assign.FullBatches(batches, levels) {
		p.full[members[i]] = size
	}
	for _, b := range batches {
		p.batch[members[b.Member]] = b.Batch.Len() * assign.FullBatchUnit
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
	if p.joined {
		return
	}
	since, ahead := p.begun[id]
	if !ahead {
		p.need[id] = need{now.Sub(p.opened), p.batch[id]}
		return
	}
	took := now.Sub(since)
	earlier, known := p.need[id]
	if !known {
		earlier = need{p.typical(), p.full[id]}
	}
	before := earlier.inProportion(p.batch[id])
	// If the result may have been ready before the round, or its trainer may have started later, the
	// trainer needed at most this time. Without this rule, a member that makes rounds longer would
	// make all trainings seem longer. If the trainer's need is unknown, it remains unknown, because the
	// trainer may be slower than most.
	if before > 0 && (p.bound[id] || p.opened.Sub(since) >= before) {
		if !known && took > before {
			if most, waited := p.most[id]; !p.bound[id] && (!waited || took < most.inProportion(p.batch[id])) {
				p.most[id] = need{took, p.batch[id]}
			}
			return
		}
		took = min(took, max(before, now.Sub(p.opened)))
	}
	p.need[id] = need{took, p.batch[id]}
}

// typical returns how long the fastest two thirds of the trainers with known needs need for full
// batches. It is zero if no need is known.
func (p *pace) typical() time.Duration {
	if len(p.need) == 0 {
		return 0
	}
	needs := make([]time.Duration, 0, len(p.need))
	for id, need := range p.need {
		needs = append(needs, need.of(p.full[id]))
	}
	return quickest(needs, assign.Quorum(len(needs)))
}

// expected returns how long two thirds of the members need for full batches, or if that is unknown, a
// guess, so that slower members can show their needs. A member whose need is unknown counts as slower
// than all others, or as if it needed the time that it trained and waited, which is also a guess.
func (p *pace) expected(members []coordinator.ClientID) (need time.Duration, guessed bool) {
	var needs []time.Duration
	shown := 0
	for _, id := range members {
		if need, known := p.need[id]; known {
			needs, shown = append(needs, need.of(p.full[id])), shown+1
		} else if most, waited := p.most[id]; waited {
			needs = append(needs, most.of(p.full[id]))
		}
	}
	guess := p.typical() * 8 / 5
	if count := max(1, assign.Quorum(len(members))); len(needs) >= count {
		return min(guess, quickest(needs, count)), shown < count
	}
	return guess, true
}

// quickest returns the count-th shortest of the times.
func quickest(needs []time.Duration, count int) time.Duration {
	slices.Sort(needs)
	return needs[count-1]
}
