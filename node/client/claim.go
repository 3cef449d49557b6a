package client

import (
	"math"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// claimOf returns this client's claim about a batch that it trained, for the round that it
// witnesses. It does not claim a loss that is missing or not a number.
func claimOf(t event.Trained) coordinator.Claim {
	return coordinator.Claim{
		Loss:  uint16(bounded(float64(t.Loss)*coordinator.LossUnit, math.MaxUint16)),
		Speed: uint32(bounded(float64(t.Tokens)/t.Seconds, math.MaxUint32)),
	}
}

// bounded rounds a number to an encoding in which zero means none.
func bounded(v, most float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 0
	}
	return min(max(1, math.Round(v)), most)
}
