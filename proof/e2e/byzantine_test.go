package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/proof/e2e/byzantine"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// exitHostFault is the exit code of a client that detects a dishonest host.
const exitHostFault = 7

// TestByzantineHost has real clients in a run whose host is dishonest. All clients that can detect this
// must end with the evidence in a file, and no client may accept a model that the run did not
// produce.
func TestByzantineHost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		attack    byzantine.Attack
		everybody bool // every client detects it itself; otherwise some clients learn it from other clients
		reason    string
		proof     bool // two contradicting heads that the host signed
	}{
		"forks the history":            {byzantine.Fork, false, "a different start of step", true},
		"leaves out a signed action":   {byzantine.OmitAction, false, "a different start of step", true},
		"writes a checkpoint's report": {byzantine.FalseReport, true, "signature does not verify", false},
		"replays another genesis":      {byzantine.OtherGenesis, true, "it signed a head of record", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 4, steps: 40})
			run, err := config.LoadState(n.state)
			if err != nil {
				t.Fatal(err)
			}
			host, err := byzantine.Listen(byzantine.Options{Genesis: run.CoordinatorState, Attack: test.attack, After: 6})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(host.Close)
			n.address = host.Addr()
			for _, c := range n.startClients(3) {
				checkLie(t, c, test.reason, test.proof)
			}
		})
	}
}

// checkLie waits for the end of a client and examines its evidence.
func checkLie(t *testing.T, c *client, reason string, proof bool) {
	t.Helper()
	if code := c.exitCode(t, runTimeout); code != exitHostFault {
		t.Errorf("%s ended with exit code %d, want %d\n%s", c.name, code, exitHostFault, tail(c.text(t), 5))
		return
	}
	files, err := filepath.Glob(filepath.Join(c.dir, "*", "evidence-*.json"))
	if err != nil || len(files) != 1 || !strings.Contains(c.text(t), files[0]) {
		t.Errorf("%s has evidence in %v, %v", c.name, files, err)
		return
	}
	const unverified = 6
	want := map[bool]int{true: 0, false: unverified}[proof]
	if code, out := run(t, serverBinary, "run", "examine", files[0]); code != want || !strings.Contains(out, reason) {
		t.Errorf("psyche run examine of %s: exit code %d, want %d, and %q in its output:\n%s", c.name, code, want, reason, out)
	}
	for _, e := range c.events() {
		if saved, ok := e.Body.(event.Applied); ok && saved.Step > 8 {
			t.Errorf("%s applied step %d, long after the attack", c.name, saved.Step)
		}
		if _, ok := e.Body.(event.Finished); ok {
			t.Errorf("%s finished the run of a dishonest host", c.name)
		}
	}
}
