package e2e

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// TestHeldOutLoss checks that the held-out loss that members claim for the final model is the loss that
// evaluate prints for the saved checkpoint, and that a member without held-out data claims nothing.
func TestHeldOutLoss(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	const last = 8
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 4, steps: last})
	tokens := filepath.Join(n.data, "heldout", "heldout.ds") // the default
	if err := os.Mkdir(filepath.Dir(tokens), 0o755); err != nil {
		t.Fatal(err)
	}
	var text []uint16
	for i := range 100*seqLen + 1 {
		text = append(text, uint16(97+i*i%26))
	}
	writeTokens(t, tokens, text)
	n.startServer()
	clients := n.startClients(2)
	other := n.newClient("client-3")
	other.start("--data-path", filepath.Join(n.data, "train-00000.ds")) // a file has no folder for held-out data
	clients = append(clients, other)
	finish(t, clients...)
	var dir string
	var claimed *event.HeldOut
	for _, c := range clients {
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Checkpoint:
				if body.Step == last {
					dir = body.Dir
				}
			case event.State:
				if body.HeldOut != nil && body.HeldOut.Step == last {
					claimed = body.HeldOut
				}
			case event.Evaluated:
				if c == other {
					t.Errorf("%s measured %+v", c.name, body)
				}
			}
		}
		if claimed == nil || claimed.Loss.Count != 2 {
			t.Fatalf("%s: the claims about the final model are %+v, want 2", c.name, claimed)
		}
	}
	var printed struct{ Loss float64 }
	out := must(t, clientBinary, "evaluate", "--model", dir, "--data", filepath.Dir(tokens), "--seq-len", strconv.Itoa(seqLen),
		"--max-sequences", "32", "--threads", "1", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n") // warnings of libtorch may come first
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &printed); err != nil || math.Abs(printed.Loss-claimed.Loss.Median) > 0.001 {
		t.Errorf("evaluate prints %s (%v), the members claim %+v", out, err, claimed)
	}
}
