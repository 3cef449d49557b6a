package client

import (
	"math"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

func TestClaimOf(t *testing.T) {
	tests := []struct {
		loss, seconds float64
		tokens        int
		want          coordinator.Claim
	}{
		{2.3456, 2, 3001, coordinator.Claim{Loss: 2346, Speed: 1501}},
		{0, 0, 0, coordinator.Claim{}}, // a trainer that measures none
		{-1, -1, 5, coordinator.Claim{}},
		{math.NaN(), math.NaN(), 5, coordinator.Claim{}},
		{math.Inf(1), 0, 5, coordinator.Claim{}},
		{1e-9, 1e9, 5, coordinator.Claim{Loss: 1, Speed: 1}},
		{1e300, 1e-300, 5, coordinator.Claim{Loss: 1<<16 - 1, Speed: 1<<32 - 1}},
	}
	for _, test := range tests {
		if got := claimOf(event.Trained{Loss: event.Loss(test.loss), Tokens: test.tokens, Seconds: test.seconds}); got != test.want {
			t.Errorf("loss %v, %d tokens in %v s: %+v, want %+v", test.loss, test.tokens, test.seconds, got, test.want)
		}
	}
}
