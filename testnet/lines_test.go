package testnet

import (
	"strings"
	"testing"
)

// TestLinesBeforeThereIsARun: while a chain is brought up only what is done for it is told.
func TestLinesBeforeThereIsARun(t *testing.T) {
	var out strings.Builder
	lines := NewLines(&out)
	lines.Update(Progress{Clients: make([]ClientProgress, 3), Notes: []string{"the program is deployed"}})
	if got, want := out.String(), "  * the program is deployed\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	lines.Update(Progress{RunState: "Warmup", Clients: make([]ClientProgress, 3)})
	if got := out.String(); !strings.HasSuffix(got, "epoch 0  Warmup: 0 of 3 clients are members\n") {
		t.Errorf("got %q", got)
	}
}
