package client

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

func TestClaimOf(t *testing.T) {
	tests := []struct {
		loss, seconds float64
		tokens        int
		want          coordinator.Claim
	}{
		{2.3456, 2, 3001, coordinator.Claim{Loss: 2346, Speed: 1501}},
		{0, 0, 0, coordinator.Claim{}}, // a trainer that measures neither
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

// TestFalseClaimMovesNothing checks a member that claims a loss that is far too low. All members
// see the median of the other claims, and that this member's claim is far from it. There are no
// other effects.
func TestFalseClaimMovesNothing(t *testing.T) {
	for _, clients := range []int{4, 16} {
		t.Run(fmt.Sprint(clients), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(uint16(clients))
				config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 16, 16 // a batch for each member
				w := newWorld(t, config)
				var members []*member
				for i := range clients {
					members = append(members, w.launch(i, func(o *options) {
						o.trainer.Duration = 300 * time.Millisecond
						if i == 1 {
							o.trainer.Loss = func(uint32) float64 { return 0.001 }
						}
					}))
				}
				finishEqual(w, members...)
				for i, m := range members {
					checkClaims(t, fmt.Sprint("client ", i), all[event.State](m), clients, members[1].id.String())
					if applied := all[event.Applied](m); len(applied) != 9 || slices.ContainsFunc(applied, func(a event.Applied) bool { return len(a.Lost) > 0 }) {
						t.Errorf("client %d: %+v", i, applied)
					}
				}
			})
		})
	}
}

// checkClaims checks that the claimed loss of each round is the number of the round.
func checkClaims(t *testing.T, observer string, states []event.State, clients int, byzantine string) {
	t.Helper()
	seen := map[uint32]bool{}
	for _, s := range states {
		c := s.Claimed
		if c == nil {
			continue
		}
		seen[c.Step] = true
		if c.Loss.Median != float64(c.Step) || c.Loss.Spread != 0 || c.Loss.Count != clients || !slices.Equal(c.Loss.Far, []string{byzantine}) || c.Speed.Count != clients {
			t.Errorf("%s sees %+v", observer, c)
		}
		if len(s.Members) != clients && s.RunState != "WaitingForMembers" && s.RunState != "Finished" {
			t.Errorf("%s: %d members in step %d", observer, len(s.Members), s.Step)
		}
	}
	if len(seen) < 8 {
		t.Errorf("%s saw claims of %d rounds", observer, len(seen))
	}
}
