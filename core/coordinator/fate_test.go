package coordinator

import (
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
)

// Fate is what became of a batch, as far as the round's witnesses tell.
type Fate uint8

// The fates of a batch.
const (
	// Held: a quorum of the witnesses holds a result of its trainer. It is applied
	// unless the trainer signed several, none of which a quorum holds.
	Held Fate = iota
	// Lost: no quorum holds a result of its trainer. It is never applied.
	Lost
	// Skipped: its trainer was on probation, or its optimizer warmed up. It is never applied.
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

// BatchFate is a batch of a round with its owner, and what became of it.
type BatchFate struct {
	Batch assign.BatchID
	Owner ClientID
	Fate  Fate
}

// Fates returns what became of each batch of a finished round, ascending. The batches
// of a run's rounds, one after the other, hold every sequence below Progress.DataIndex
// exactly once.
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
