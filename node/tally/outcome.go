package tally

import (
	"bytes"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/merkle"
)

// JudgePause is the minimum time between two decisions of a round that lacks results.
const JudgePause = 100 * time.Millisecond

// UnsureTimeout is the maximum time to ask peers for results that witnesses claim to hold, or may
// hold instead of the results that seem to count. Dishonest witnesses can make every round unsure, so
// the time is short.
const UnsureTimeout = 2 * time.Second

// HeldOf returns the verified result of a slot that was made from this client's replica. If there
// are two, it returns the one with the lower commitment, independent of their order of arrival.
func (t *Tally) HeldOf(s *Slot) *Candidate {
	var best *Candidate
	for _, c := range s.Candidates {
		if c.State != Held || !t.Began || c.Replica != t.Replica {
			continue
		}
		if best == nil || bytes.Compare(c.Commitment[:], best.Commitment[:]) < 0 {
			best = c
		}
	}
	return best
}

// CameFrom reports whether a result of a client has arrived here.
func (t *Tally) CameFrom(id coordinator.ClientID) bool {
	return slices.ContainsFunc(t.Slots, func(s Slot) bool {
		return s.Owner == id && slices.ContainsFunc(s.Candidates, func(c *Candidate) bool { return c.State == Held || c.Took > 0 })
	})
}

// Progress returns the owners of the results that this client holds, and the owners of all batches.
// It leaves out owners for which counts returns false.
func (t *Tally) Progress(counts func(coordinator.ClientID) bool) (held, all []coordinator.ClientID) {
	for i := range t.Slots {
		owner := t.Slots[i].Owner
		if !counts(owner) {
			continue
		}
		all = append(all, owner)
		if t.HeldOf(&t.Slots[i]) != nil {
			held = append(held, owner)
		}
	}
	return held, all
}

// Witness returns the proof of the held results, and their number.
func (t *Tally) Witness() (coordinator.WitnessRound, int) {
	w := coordinator.WitnessRound{Step: t.Round.Step, Replica: t.Replica}
	leaves := make([][32]byte, len(t.Slots))
	keys := bloom.NewKeys(t.Round.Seed)
	count := 0
	for i := range t.Slots {
		c := t.HeldOf(&t.Slots[i])
		if c == nil {
			continue
		}
		count++
		leaves[i] = c.Commitment
		w.Participants.AddPositions(keys.Positions(t.Slots[i].Owner[:]))
		w.Commitments.AddPositions(keys.Positions(c.Commitment[:]))
	}
	w.CommitmentsRoot = merkle.Root(leaves)
	return w, count
}

// votes returns the number of known witnesses of the round that hold a candidate.
func (t *Tally) votes(c *Candidate) int {
	if !c.polled {
		c.votes, c.polled = t.Round.Votes(c.Commitment), true
	}
	return c.votes
}

// Outcome is the outcome of a finished round.
type Outcome struct {
	Counted  []Counted
	Sources  []*Candidate // candidates of Counted, in the same order
	Kept     []Kept       // held by witnesses, but not applied
	Lost     []Slot       // batches without a counted result
	Missing  int          // number of results that count but are not held, including unknown ones
	Claimed  bool         // all missing results are unknown, and fewer witnesses than a quorum claim to hold them
	Unsure   bool         // witnesses whose lists are unknown may hold other results than Counted
	Informed []uint16     // members that know more about unknown or unsure results
	NoRoom   bool         // a missing result did not fit into the memory for blobs

	open bool // it is unknown which results count
}

// Kept is a result that witnesses hold but that is not applied, because its trainer is on probation
// or its optimizer is too young.
type Kept struct {
	Slot      *Slot
	Candidate *Candidate
}

// Known reports whether it is known which results count, held or not.
func (o Outcome) Known() bool { return !o.open && !o.Unsure }

// holds reports whether a quorum of witnesses attests a result, counted or not.
func (o Outcome) holds(c Commitment) bool {
	return slices.ContainsFunc(o.Counted, func(counted Counted) bool { return counted.Commitment == c }) ||
		slices.ContainsFunc(o.Kept, func(kept Kept) bool { return kept.Candidate.Commitment == c })
}

// Decide returns the outcome. It is usable only if nothing is missing, and final only if it is also
// not Unsure.
func (t *Tally) Decide() Outcome {
	ballot := t.ballot()
	v := ballot.decide()
	o := Outcome{Missing: len(v.unknown), Claimed: v.claimed, open: len(v.unknown) > 0}
	if len(v.unknown) > 0 {
		o.Informed = ballot.informed(v.unknown)
	} else if len(v.unread) > 0 {
		o.Unsure, o.Informed = true, v.unread
	}
	for i := range t.Slots {
		s := &t.Slots[i]
		if s.Warming || v.chosen[i] == (Commitment{}) {
			o.Lost = append(o.Lost, *s)
		}
		for _, c := range s.Candidates {
			if c.Commitment != v.chosen[i] {
				continue
			}
			if s.Warming {
				o.Kept = append(o.Kept, Kept{s, c})
				break
			}
			if c.State != Held {
				o.Missing++
				o.Claimed = false
				o.NoRoom = o.NoRoom || c.noRoom
			}
			o.Counted = append(o.Counted, Counted{s.Batch, c.Commitment, s.Vote})
			o.Sources = append(o.Sources, c)
		}
	}
	return o
}

// Predict returns the outcome of the running round, assuming that every witness holds the results
// that this client holds. ok is true if this client expects no further result: it holds the result of
// every owner for which counts returns true, holds all results that it knows, and has not seen two
// results of one member.
func (t *Tally) Predict(counts func(coordinator.ClientID) bool) (o Outcome, ok bool) {
	for i := range t.Slots {
		s := &t.Slots[i]
		c := t.HeldOf(s)
		switch {
		case len(s.Candidates) > 1, c == nil && (len(s.Candidates) > 0 || counts(s.Owner)):
			return Outcome{}, false
		case c == nil, s.Warming:
		default:
			o.Counted, o.Sources = append(o.Counted, Counted{s.Batch, c.Commitment, s.Vote}), append(o.Sources, c)
		}
	}
	return o, len(o.Counted) > 0
}

// ballot returns the input of the round's decision.
func (t *Tally) ballot() ballot {
	input := ballot{
		round:      &t.Round,
		owners:     make([]coordinator.ClientID, len(t.Slots)),
		candidates: make([][]Commitment, len(t.Slots)),
		held:       make([][]Commitment, len(t.Slots)),
	}
	for i, s := range t.Slots {
		input.owners[i] = s.Owner
		for _, c := range s.Candidates {
			input.candidates[i] = append(input.candidates[i], c.Commitment)
			if c.State == Held {
				input.held[i] = append(input.held[i], c.Commitment)
			}
		}
	}
	return input
}

// IsHeld reports whether witnesses hold a result, according to an outcome of the round. known is
// false as long as dishonest witnesses may hide results that change the answer.
func (t *Tally) IsHeld(c Commitment, o Outcome) (held, known bool) {
	maxFaulty := (max(int(t.Round.WitnessesElected), len(t.Round.Witnesses)) - 1) / 3
	switch votes, needed := t.Round.Votes(c), int(t.Round.WitnessesNeeded); {
	case !o.open:
		return o.holds(c), true
	case votes >= needed:
		return true, true
	case votes+maxFaulty < needed:
		return false, true
	}
	return o.holds(c), false
}

// judgement is an outcome and its inputs.
type judgement struct {
	made      bool
	at        time.Time
	witnesses []coordinator.Witness
	changes   int
	outcome   Outcome
}

// Judge is Decide with a cache. It returns the last outcome if the results and the witnesses of the
// round have not changed. A decision takes long if many commitments were forged. While results are
// missing and more may arrive, Judge therefore decides at most once in JudgePause, and otherwise
// returns the last outcome. If atOnce is true, it does not wait.
func (t *Tally) Judge(now time.Time, atOnce bool) Outcome {
	j := &t.judged
	if j.made && j.changes == t.changes && slices.Equal(j.witnesses, t.Round.Witnesses) {
		return j.outcome
	}
	if j.made && j.outcome.Missing > 0 && !atOnce && now.Sub(j.at) < JudgePause && t.unfinished() {
		return j.outcome
	}
	o := t.Decide()
	*j = judgement{true, now, t.Round.Witnesses, t.changes, o}
	return o
}

// unfinished reports whether a candidate is being fetched or can still be fetched.
func (t *Tally) unfinished() bool {
	return slices.ContainsFunc(t.Slots, func(s Slot) bool {
		return slices.ContainsFunc(s.Candidates, func(c *Candidate) bool { return c.State == Announced || c.State == Fetching })
	})
}

// Need is the importance of a result.
type Need uint8

// Levels of need, highest first.
const (
	Needed    Need = iota // the round is running, or the result counts as far as is known
	Telling               // a witness's filter contains it, and other results of the batch are known
	Supported             // a witness's filter contains it, and no other result of the batch is known
	Useless
)

// Needs returns a function that returns the need for a result. Once the outcome of a round is known,
// results that are not part of it are useless. While the outcome is unknown or lacks results, even a
// result that only one witness holds is fetched, because it is required to find that witness's list.
// Without the lists, the outcome would include forged commitments that no client can fetch.
func (t *Tally) Needs() func(s *Slot, c *Candidate) Need {
	switch {
	case !t.Final:
		return func(*Slot, *Candidate) Need { return Needed }
	case !t.Round.HasQuorum():
		return func(*Slot, *Candidate) Need { return Useless }
	}
	outcome, judged := t.judged.outcome, t.judged.made
	_, agreed := t.Round.QuorumRoot()
	decided := judged && !outcome.open && !outcome.Unsure && (agreed || outcome.Missing == 0) // no other set has an agreed root
	return func(s *Slot, c *Candidate) Need {
		switch votes := t.votes(c); {
		case judged && slices.Contains(outcome.Sources, c), !judged && votes >= int(t.Round.WitnessesNeeded):
			return Needed
		case decided, votes == 0, !judged && !agreed:
			return Useless
		case len(s.Candidates) > 1:
			return Telling
		}
		return Supported
	}
}
