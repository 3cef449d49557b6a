package tally

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// wholeVote is the vote of one witness; see support.
const wholeVote = 1 << 16

// Reasons why an announcement is not entered, or not only that.
var (
	errUnknownBatch  = errors.New("no such batch in the round")
	errNotAssignee   = errors.New("the batch is another client's")
	ErrKnownResult   = errors.New("announced before")
	ErrEquivocation  = errors.New("a second result for the same batch")
	ErrOtherSize     = errors.New("announced before with another size")
	ErrTooManyBefore = errors.New("two other results for the same batch came before")
)

// Hear enters an announcement whose signature was verified. It returns ErrEquivocation
// after entering a second result, unless that took the place of another, and another error
// when nothing was entered: ErrOtherSize when what was entered before may have been a trap.
// Beyond two results per batch only those are entered that witnesses of the finished round
// hold, so that a trainer that sends many can neither hide the one that counts nor that
// none does: without knowing where the witnesses' votes went nobody can rule out that one
// has the quorum. When all places are taken, a result with more support takes the place of
// the one with the least; see Displaced.
func (b *Tally) Hear(author identity.ID, a wire.ResultAnnouncement, raw []byte) error {
	s := b.Find(a.Batch)
	if s == nil {
		return fmt.Errorf("%w: batch %v of step %d", errUnknownBatch, a.Batch, a.Step)
	}
	if s.Owner != coordinator.ClientID(author) {
		return fmt.Errorf("%w: batch %v of step %d", errNotAssignee, a.Batch, a.Step)
	}
	for _, c := range s.Candidates {
		if c.Commitment == a.Blob {
			if c.Size != a.Size && !c.Disputed && c.State != Held {
				return ErrOtherSize
			}
			return ErrKnownResult
		}
	}
	crowded := false
	if n := len(s.Candidates); n >= MaxCandidates {
		if !b.Final || b.Round.Votes(a.Blob) == 0 {
			return ErrTooManyBefore
		}
		if n >= MaxCandidates+int(b.Round.WitnessesElected) {
			if crowded = b.displace(s, a.Blob); !crowded {
				return ErrTooManyBefore
			}
		}
	}
	s.unshelved, b.unshelved = true, true
	b.changes++
	b.unfetched++
	s.Candidates = append(s.Candidates, &Candidate{Commitment: a.Blob, Size: a.Size, Replica: a.Replica, raw: raw, InTime: !b.Final})
	if len(s.Candidates) > 1 && !crowded {
		return ErrEquivocation
	}
	return nil
}

// Displaced returns the candidates that made room for others since the last call: what was
// begun for them should end.
func (b *Tally) Displaced() []*Candidate {
	displaced := b.displaced
	b.displaced = nil
	return displaced
}

// displace takes the candidate with the least support out of a slot, if a new one has more.
// What was heard while the round ran and is held stays, at most two: of these is the one
// that this client proved to hold, and those that it needs to read the lists of others
// that proved the same.
//
// No other result that an honest witness holds is displaced or kept out, however many a
// trainer and the witnesses that lie for it name: it has that witness's whole vote, and
// there are as many places beside those two as votes. A trainer would have to fill the
// places with results that pass the filters of honest witnesses by error, so that these
// part their votes.
func (b *Tally) displace(s *Slot, with Commitment) bool {
	commitments := make([]Commitment, 0, len(s.Candidates)+1)
	for _, c := range s.Candidates {
		commitments = append(commitments, c.Commitment)
	}
	support := b.support(append(commitments, with))
	least := -1
	for i, c := range s.Candidates {
		if stays := c.InTime && c.State == Held; !stays && (least < 0 || support[i] < support[least]) {
			least = i
		}
	}
	if least < 0 || support[least] >= support[len(s.Candidates)] {
		return false
	}
	leaves := s.Candidates[least]
	if leaves.State == Announced {
		b.unfetched--
	}
	b.displaced = append(b.displaced, leaves)
	s.Candidates = slices.Delete(slices.Clone(s.Candidates), least, least+1)
	return true
}

// support returns how much of the votes of the round's witnesses each of several results of
// one batch has. A witness parts its vote among all of them that its filter contains, as
// an honest one holds one of them at most.
func (b *Tally) support(commitments []Commitment) []int {
	keys := bloom.NewKeys(b.Round.Seed)
	positions := make([]bloom.Positions, len(commitments))
	for i, c := range commitments {
		positions[i] = keys.Positions(c[:])
	}
	support := make([]int, len(commitments))
	for k := range b.Round.Witnesses {
		var named []int
		for i := range positions {
			if b.Round.Witnesses[k].Commitments.ContainsPositions(positions[i]) {
				named = append(named, i)
			}
		}
		for _, i := range named {
			support[i] += wholeVote / len(named)
		}
	}
	return support
}

// Dispute forgets the size of a result whose trainer signed different ones, so that a trainer that
// believed the wrong one can fetch what counts after all. It returns the result if it is on
// its way with the size that is not believed any more, else nil.
func (b *Tally) Dispute(batch assign.BatchID, commitment Commitment) (flying *Candidate) {
	for _, c := range b.Find(batch).Candidates {
		if c.Commitment != commitment {
			continue
		}
		c.Disputed = true
		c.RetryAt = time.Time{}
		if c.State == Refused && !c.asked { // for its size
			b.set(c, Announced)
		}
		if c.State == Fetching {
			flying = c
		}
	}
	return flying
}

// Origins returns of how many batches a result is announced, and of how many only such that
// were made from another replica. A result of a model of another shape is never held.
func (b *Tally) Origins() (all, others int) {
	for i := range b.Slots {
		known := b.Slots[i].Candidates
		if len(known) == 0 {
			continue
		}
		all++
		if !slices.ContainsFunc(known, func(c *Candidate) bool { return c.Replica == b.Replica }) {
			others++
		}
	}
	return all, others
}
