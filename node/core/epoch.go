package core

import "github.com/psyche-go/psyche/core/coordinator"

// Epoch identifies an epoch by its starting model. A Warmup that is aborted and repeated with the
// same model has the same Epoch.
type Epoch struct {
	StartStep  uint32
	Checkpoint coordinator.Checkpoint
}

// EpochOf returns the running epoch.
func EpochOf(s *coordinator.State) Epoch { return Epoch{s.Epoch.StartStep, s.Model.Checkpoint} }

// term returns the number of the term of a step in the epoch.
func (e Epoch) term(step uint32) uint32 {
	return (max(step, e.StartStep) - e.StartStep) / coordinator.TermRounds
}
