package coordinator

import (
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
)

// Fate is the outcome of a batch, according to the round's witnesses.
type Fate uint8

// The outcomes of a batch.
const (
	// Held: a quorum of the witnesses holds a result of its trainer. The result is applied unless
	// the trainer signed several results and none of them has a quorum.
	Held Fate = iota
	// Lost: no quorum holds a result of its trainer. It is never applied.
	Lost
	// Skipped: its trainer was on probation, or its optimizer was warming up. It is never applied.
	Skipped
)

// String returns the fate's name.
func (f Fate) String() string {
	switch f {
	case Held:
		return "held"
	case Lost:
		return "lost"
	default:
		return "skipped"
	}
}

// BatchFate is a batch of a round with its owner and its outcome.
type BatchFate struct {
	Batch assign.BatchID
	Owner ClientID
	Fate  Fate
}

// Fates returns the outcome of each batch of a finished round, in ascending order. The batches of
// all rounds of a run, one after the other, contain every sequence below Progress.DataIndex exactly
// once.
func (r *Round) Fates(c Config) []BatchFate {
	assignments := r.Assignments(c)
	fates := make([]BatchFate, len(assignments))
	keys := bloom.NewKeys(r.Seed)
	for i, a := range assignments {
		owner := r.Members[a.Member]
		fate := Held
		switch {
		case r.Warming.Has(a.Member):
			fate = Skipped
		case !r.HasQuorum() || r.score(&keys, owner) < int(r.WitnessesNeeded):
			fate = Lost
		}
		fates[i] = BatchFate{Batch: a.Batch, Owner: owner, Fate: fate}
	}
	return fates
}
