package testnet

import (
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// TestLinesBeforeThereIsARun checks that only the preparations are reported while a chain is
// started.
func TestLinesBeforeThereIsARun(t *testing.T) {
	var out strings.Builder
	lines := NewLines(&out)
	lines.Update(Progress{Clients: make([]ClientProgress, 3), Notes: []string{"the program is deployed"}})
	if got, want := out.String(), "  * the program is deployed\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	lines.Update(Progress{State: event.State{RunState: "Warmup"}, Clients: make([]ClientProgress, 3), Changed: true})
	lines.Update(Progress{State: event.State{RunState: "Warmup", Ready: 1}, Clients: make([]ClientProgress, 3)}) // no line
	if got := out.String(); !strings.HasSuffix(got, "epoch 0  Warmup: 0 of 3 clients are members\n") {
		t.Errorf("got %q; want text that ends with \"epoch 0  Warmup: 0 of 3 clients are members\\n\"", got)
	}
}

// TestLinesOfHeldOutLosses checks that the claims about a checkpoint get one line, after the Cooldown in which
// members claim.
func TestLinesOfHeldOutLosses(t *testing.T) {
	var out strings.Builder
	lines := NewLines(&out)
	held := func(step uint32, claims int) *event.HeldOut {
		return &event.HeldOut{Step: step, Loss: event.Claims{Count: claims, Median: 2.5}}
	}
	for _, s := range []event.State{
		{RunState: "Cooldown", HeldOut: held(8, 1)}, {RunState: "Warmup", HeldOut: held(8, 3)}, {RunState: "RoundTrain", HeldOut: held(8, 3)},
		{RunState: "Cooldown", HeldOut: held(8, 3)}, {RunState: "Finished", HeldOut: held(16, 2)},
	} {
		lines.Update(Progress{State: s, Changed: true})
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "held-out") {
			got = append(got, line)
		}
	}
	want := []string{"epoch 0  " + held(8, 3).String() + "\n", "epoch 0  " + held(16, 2).String() + "\n"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
