package tui

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// TestHeldOutLoss checks that the line of the loss contains the newest held-out loss, also after the state has none.
func TestHeldOutLoss(t *testing.T) {
	var r run
	claimed := &event.Claimed{Step: 8, Witnesses: 4, Loss: event.Claims{Count: 3, Median: 2.4, Spread: 0.01}}
	held := &event.HeldOut{Step: 6, Digest: "ab", Loss: event.Claims{Count: 2, Median: 2.5}}
	for _, s := range []event.State{{RunState: "Warmup", HeldOut: held, Claimed: claimed}, {RunState: "RoundTrain", Claimed: claimed}} {
		r.see(event.Event{Time: time.Unix(1000, 0), Body: s})
	}
	if got, want := r.loss(true), "claimed loss 2.400 ± 0.010: step 8, 3 of 4 witnesses; held-out loss 2.500 ± 0.000: step 6, 2 members"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
