package client

import (
	"math"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// claimOf returns the claim about loss and speed that this client sends with its witness proof, after
// it has trained a batch. It does not claim a loss that is missing or not a number.
func claimOf(t event.Trained) coordinator.Claim {
	return coordinator.Claim{
		Loss:  uint16(bounded(float64(t.Loss)*coordinator.LossUnit, math.MaxUint16)),
		Speed: uint32(bounded(float64(t.Tokens)/t.Seconds, math.MaxUint32)),
	}
}

// bounded rounds v for a claim: to an integer from 1 to most, or 0 for no claim if v is not a positive
// number.
func bounded(v, most float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 0
	}
	return min(max(1, math.Round(v)), most)
}
