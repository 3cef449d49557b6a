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

// Results of Hear. After ErrEquivocation the announcement may have been entered.
var (
	errUnknownBatch  = errors.New("no such batch in the round")
	errNotAssignee   = errors.New("the batch is another client's")
	ErrKnownResult   = errors.New("announced before")
	ErrEquivocation  = errors.New("a second result for the same batch")
	ErrOtherSize     = errors.New("announced before with another size")
	ErrTooManyBefore = errors.New("two other results for the same batch came before")
)

// Hear enters an announcement whose signature was verified. It returns ErrEquivocation after it has
// entered a second result, unless that result displaced another. It returns another error if it
// entered nothing: ErrOtherSize if the size entered before may have been a trap. Beyond two results
// per batch, Hear enters only results that witnesses of the finished round hold. Otherwise a
// trainer that sends many results could hide the one that counts, or hide that none counts: as long
// as it is unknown where the witnesses' votes went, one of them might have the quorum. If all slots
// are taken, a result with more support displaces the one with the least; see Displaced.
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

// Displaced returns the candidates that were displaced since the last call. The caller should
// cancel their downloads.
func (b *Tally) Displaced() []*Candidate {
	displaced := b.displaced
	b.displaced = nil
	return displaced
}

// displace removes the candidate with the least support from a slot, if a new one has more.
// Candidates that arrived during the round and are held stay, at most two: one of them is the one
// that this client proved to hold, and they are needed to read the lists of other witnesses that
// proved the same.
//
// No other result that an honest witness holds is displaced or kept out, however many results a
// trainer and its dishonest witnesses name: it has that witness's whole vote, and there are as many
// slots in addition to those two as votes. A trainer would have to fill the slots with results that
// pass the filters of honest witnesses by error, so that these votes are divided.
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

// support returns each result's share of the votes of the round's witnesses, for several results of
// one batch. The vote of a witness is divided among all of them that its filter contains, because
// an honest one holds at most one of them.
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

// Dispute discards the size of a result whose trainer signed different sizes, so that a client that
// believed the wrong one can still fetch the result. If the result is being downloaded with the
// discarded size, Dispute returns it, else nil.
func (b *Tally) Dispute(batch assign.BatchID, commitment Commitment) (flying *Candidate) {
	for _, c := range b.Find(batch).Candidates {
		if c.Commitment != commitment {
			continue
		}
		c.Disputed = true
		c.RetryAt = time.Time{}
		if c.State == Refused && !c.asked { // because of its size
			b.set(c, Announced)
		}
		if c.State == Fetching {
			flying = c
		}
	}
	return flying
}

// Origins returns the number of batches with an announced result, and the number of those whose
// results were all made from another replica. A result from a model of another shape is never held.
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
