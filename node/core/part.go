package core

import (
	"math"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Part is a member's part in one round.
type Part struct {
	Step    uint32
	Elected bool      // the member is a witness of the round
	Opened  time.Time // when the member learned of the round
	Most    time.Time // when the results of two thirds of the awaited trainers were held; zero: not yet, or not observed

	Whole   time.Time // when the results of all healthy members were first seen to be here; zero: not yet, or not observed
	Trained bool      // training has started

	promised time.Duration // see Promised; zero: unknown

	half time.Time // when half of the other trainers' results were first seen to be here; zero: not yet, or not observed

	ahead assign.BatchID // batch of the next round whose training was started ahead; it starts ahead only once

	reported bool // the member reported that everything that can be expected is held
	pace     pace

	examined *coordinator.State     // newest state in which members were examined
	judged   bool                   // suspects is set
	suspects []coordinator.ClientID // members whose results the witnesses do not hold
}

// Limits of the promised duration. Dishonest witnesses could otherwise lower the levels of members, so that
// witnesses wait for a long time.
const (
	mostPromised = 24 * time.Hour
	mostSlower   = 4 // times as long as two thirds of the members need
)

// NewPart returns the part of a member in a round that starts now.
func NewPart(step uint32, elected bool, now time.Time) Part {
	return Part{Step: step, Elected: elected, Opened: now, pace: newPace(now)}
}

// Join takes into account that the member did not see when the round's trainers started, for example
// because it returned to the epoch. The needs would seem too short, so it waits for all results or for
// the proofs of other witnesses.
func (p *Part) Join() { p.pace.joined = true }

// Divide takes into account that batches have different sizes. levels are the levels of the members.
func (p *Part) Divide(members []coordinator.ClientID, levels []uint8, batches []assign.Assignment) {
	p.pace.divide(members, levels, batches)
}

// Promised sets how long each training takes if members are as fast as their levels. The results of two thirds
// of the members may come much earlier if the run does not know the speed of a fast member yet. A witness
// then waits for the others.
func (p *Part) Promised(round *coordinator.Round, trainers []assign.Assignment, seqLen uint32) {
	levels := make([]uint8, 0, len(trainers))
	for _, a := range trainers {
		levels = append(levels, round.Levels[a.Member])
	}
	if len(levels) == 0 {
		return
	}
	// Members far below this level have a larger share than they promised, and members far above it a smaller one.
	reference := assign.Reference(levels)
	if i := slices.Index(levels, reference); reference > 0 {
		tokens := float64(trainers[i].Batch.Len()) * float64(seqLen)
		p.promised = time.Duration(min(tokens/math.Exp2(float64(reference)/8), mostPromised.Seconds()) * float64(time.Second))
	}
}

// Follow takes into account how long trainers needed in the epoch's previous rounds.
func (p *Part) Follow(before *Part) { p.pace.follow(&before.pace) }

// Ahead takes into account that the round's trainers may have started during the previous round.
func (p *Part) Ahead(before *Part, trainersBefore, trainers []coordinator.ClientID) {
	p.pace.ahead(&before.pace, trainersBefore, trainers)
}

// Results are the results of a round.
type Results interface {
	// Arrived returns the trainers whose results the member holds.
	Arrived() []coordinator.ClientID
	// Awaited returns the trainers for which the round waits, and the ones whose results the member holds.
	Awaited() (held, all []coordinator.ClientID)
	// Members returns the members of the epoch for which rounds wait.
	Members() []coordinator.ClientID
}

// complete reports whether a witness has waited long enough for a round's results: it holds all awaited
// results, or the missing ones are late compared with most others. A slow member, or even a third of
// the members, therefore cannot make witnesses wait for an arbitrary time.
func (p *Part) complete(r Results, now time.Time) bool {
	for _, id := range r.Arrived() {
		p.pace.arrived(id, now)
	}
	held, all := r.Awaited()
	if p.pace.joined {
		return len(held) == len(all)
	}
	quorum := assign.Quorum(len(all))
	if len(held) < quorum {
		p.Most = time.Time{}
		return len(held) == len(all)
	}
	if p.Most.IsZero() {
		p.Most = now
	}
	return len(held) == len(all) || p.late(r.Members(), now)
}

// WitnessWait returns how long a witness waits for the last third of the results after it holds the
// first two thirds. It assumes that all trainers start when the round starts; see deadline.
func (p *Part) WitnessWait() time.Duration {
	return max(LeastWitnessWait, p.Most.Sub(p.Opened)/4)
}

// late reports whether missing results are late. The witness holds the results of two thirds of the
// awaited trainers. Too few members may have shown how long they need, for example in an epoch's first
// rounds. The witness then waits longer, so that slower members can show it.
func (p *Part) late(members []coordinator.ClientID, now time.Time) bool {
	typical := p.pace.typical()
	if !now.After(p.deadline(max(typical, min(p.promised, mostSlower*typical)))) {
		return false
	}
	need, guess := p.pace.expected(members)
	if guess && p.pace.guesses == maxGuesses || now.After(p.deadline(need)) {
		return true
	}
	p.pace.guessed = p.pace.guessed || guess
	return false
}

// deadline returns the end of a witness's wait for missing results. A trainer may start as late as the
// round itself. It then has the time that two thirds of the epoch's trainers need, plus a quarter of it.
func (p *Part) deadline(need time.Duration) time.Time {
	until, other := p.Most.Add(p.WitnessWait()), p.Opened.Add(need+max(LeastWitnessWait, need/4))
	if other.After(until) {
		return other
	}
	return until
}
