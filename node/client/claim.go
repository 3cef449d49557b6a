package client

import (
	"math"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// claimOf is what this client says of a batch that it trained, when it witnesses that round. A loss that
// is no number, or none, is not claimed.
func claimOf(t event.Trained) coordinator.Claim {
	return coordinator.Claim{
		Loss:  uint16(bounded(float64(t.Loss)*coordinator.LossUnit, math.MaxUint16)),
		Speed: uint32(bounded(float64(t.Tokens)/t.Seconds, math.MaxUint32)),
	}
}

// bounded rounds a number of which zero says that there is none.
func bounded(v, most float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 0
	}
	return min(max(1, math.Round(v)), most)
}
