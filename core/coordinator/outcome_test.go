package coordinator

import (
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
)

// Outcome is the outcome of a batch, according to the round's witnesses.
type Outcome uint8

// The outcomes of a batch.
const (
	// Held: a quorum of the witnesses holds a result of its trainer. The result is applied unless
	// the trainer signed several results and none of them has a quorum.
	Held Outcome = iota
	// Lost: no quorum holds a result of its trainer. It is never applied.
	Lost
	// Skipped: its trainer was on probation, or its optimizer was warming up. It is never applied.
	Skipped
)

// String returns the outcome's name.
func (f Outcome) String() string {
	switch f {
	case Held:
		return "held"
	case Lost:
		return "lost"
	default:
		return "skipped"
	}
}

// BatchOutcome is a batch of a round with its owner and its outcome.
type BatchOutcome struct {
	Batch   assign.BatchID
	Owner   ClientID
	Outcome Outcome
}

// Outcomes returns the outcome of each batch of a finished round, in ascending order. The batches of
// all rounds of a run, one after the other, contain every sequence below Progress.DataIndex exactly
// once.
func (r *Round) Outcomes(c Config) []BatchOutcome {
	assignments := r.Assignments(c)
	outcomes := make([]BatchOutcome, len(assignments))
	keys := bloom.NewKeys(r.Seed)
	for i, a := range assignments {
		owner := r.Members[a.Member]
		outcome := Held
		switch {
		case r.Warming.Has(a.Member):
			outcome = Skipped
		case !r.HasQuorum() || r.score(&keys, owner) < int(r.WitnessesNeeded):
			outcome = Lost
		}
		outcomes[i] = BatchOutcome{Batch: a.Batch, Owner: owner, Outcome: outcome}
	}
	return outcomes
}
