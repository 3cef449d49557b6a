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

// wholeVote is the weight of one witness's vote in support, which divides votes.
const wholeVote = 1 << 16

// Results of Receive. After ErrEquivocation the announcement may have been entered.
var (
	errUnknownBatch  = errors.New("no such batch in the round")
	errNotAssignee   = errors.New("the batch belongs to another client")
	ErrKnownResult   = errors.New("already announced")
	ErrEquivocation  = errors.New("a second result for the same batch")
	ErrOtherSize     = errors.New("already announced with a different size")
	errTooManyBefore = errors.New("already two other results for the same batch")
)

// Receive enters an announcement whose signature was verified. If it enters a second or later result of
// a batch, it returns ErrEquivocation, unless that result displaced another. Any other error means
// that nothing was entered. ErrOtherSize means that the trainer also signed another size of the same
// result, so that the size entered before may be wrong.
//
// Beyond two results of a batch, Receive enters only results that witnesses of the finished round hold.
// These must be entered, or a trainer that signs many results could hide the result that counts. It
// could also hide that no result counts: a client must know every result with votes to rule out that
// an unknown result has a quorum. If all slots are taken, a result with more support displaces the
// result with the least support; see Displaced.
func (t *Tally) Receive(author identity.ID, a wire.ResultAnnouncement, raw []byte) error {
	s := t.Find(a.Batch)
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
		if !t.Final || t.Round.Votes(a.Blob) == 0 {
			return errTooManyBefore
		}
		if n >= MaxCandidates+int(t.Round.WitnessesElected) {
			if crowded = t.displace(s, a.Blob); !crowded {
				return errTooManyBefore
			}
		}
	}
	s.changed, t.changed = true, true
	t.changes++
	t.unfetched++
	s.Candidates = append(s.Candidates, &Candidate{Commitment: a.Blob, Size: a.Size, Replica: a.Replica, raw: raw, InTime: !t.Final})
	if len(s.Candidates) > 1 && !crowded {
		return ErrEquivocation
	}
	return nil
}

// Displaced returns the candidates that were displaced since the last call. The caller should
// cancel their downloads.
func (t *Tally) Displaced() []*Candidate {
	displaced := t.displaced
	t.displaced = nil
	return displaced
}

// displace removes the candidate with the least support from a slot, if a new result has more
// support. It never removes held candidates that arrived during the round; a slot has at most two of
// them. This client proved that it holds one of the two, and needs this candidate to read the lists of
// witnesses that proved the same result.
//
// Apart from these two, there are as many places for candidates as witnesses. A result that an honest
// witness holds has the whole vote of that witness, so the candidates of a trainer and of dishonest
// witnesses cannot displace it or keep it out. For that, a trainer would have to find many results
// that pass the filters of honest witnesses by error, because these divide the votes.
func (t *Tally) displace(s *Slot, with Commitment) bool {
	commitments := make([]Commitment, 0, len(s.Candidates)+1)
	for _, c := range s.Candidates {
		commitments = append(commitments, c.Commitment)
	}
	support := t.support(append(commitments, with))
	minimum := -1
	for i, c := range s.Candidates {
		if stays := c.InTime && c.State == Held; !stays && (minimum < 0 || support[i] < support[minimum]) {
			minimum = i
		}
	}
	if minimum < 0 || support[minimum] >= support[len(s.Candidates)] {
		return false
	}
	leaves := s.Candidates[minimum]
	if leaves.State == Announced {
		t.unfetched--
	}
	t.displaced = append(t.displaced, leaves)
	s.Candidates = slices.Delete(slices.Clone(s.Candidates), minimum, minimum+1)
	return true
}

// support returns, for each of several results of one batch, its share of the votes of the round's
// witnesses. The vote of a witness is divided among the results that its filter contains, because an
// honest witness holds at most one of them.
func (t *Tally) support(commitments []Commitment) []int {
	keys := bloom.NewKeys(t.Round.Seed)
	positions := make([]bloom.Positions, len(commitments))
	for i, c := range commitments {
		positions[i] = keys.Positions(c[:])
	}
	support := make([]int, len(commitments))
	for k := range t.Round.Witnesses {
		var named []int
		for i := range positions {
			if t.Round.Witnesses[k].Commitments.ContainsPositions(positions[i]) {
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
// received the wrong size first can still fetch the result. If the result is being downloaded with
// the discarded size, Dispute returns it, else nil.
func (t *Tally) Dispute(batch assign.BatchID, commitment Commitment) (flying *Candidate) {
	for _, c := range t.Find(batch).Candidates {
		if c.Commitment != commitment {
			continue
		}
		c.Disputed = true
		c.RetryAt = time.Time{}
		if c.State == Refused && !c.fetched { // because of its size
			t.set(c, Announced)
		}
		if c.State == Fetching {
			flying = c
		}
	}
	return flying
}

// Origins returns the number of batches with an announced result, and the number of such batches for
// which no announced result was made from this client's replica. It also counts results that this
// client can never hold, because they come from a model of another shape.
func (t *Tally) Origins() (all, others int) {
	for i := range t.Slots {
		known := t.Slots[i].Candidates
		if len(known) == 0 {
			continue
		}
		all++
		if !slices.ContainsFunc(known, func(c *Candidate) bool { return c.Replica == t.Replica }) {
			others++
		}
	}
	return all, others
}
