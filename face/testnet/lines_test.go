package testnet

import (
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
		t.Errorf("got %q", got)
	}
}
