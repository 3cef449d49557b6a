package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// localSteps replaces the optimizer of a state.toml by an optimizer with three steps per round, and
// adds lines to its table.
func localSteps(t *testing.T, text, lines string) string {
	t.Helper()
	before, _, found := strings.Cut(text, "[model.LLM.optimizer.")
	if !found {
		t.Fatalf("no optimizer in\n%s", text)
	}
	return before + `[model.LLM.optimizer.LocalSteps]
inner_steps = 3
betas = [0.9, 0.99]
clip_grad_norm = 1.0
compression_topk = 16
compression_chunk = 16
` + lines
}

// TestLocalSteps has members that make several local steps per round, with a real model. One member
// is killed and returns. All members must end with the same model.
func TestLocalSteps(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	trainLocalSteps(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 12, steps: 24}, "outer_momentum = 0.5\n", "")
}

// TestAuditedLocalSteps is TestLocalSteps with audits: no member may be accused.
func TestAuditedLocalSteps(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	passed := 0
	for _, c := range trainLocalSteps(t, rules{clients: 4, minClients: 2, roundsPerEpoch: 20, steps: 40}, "error_decay = 0.95\n", "verification_percent = 30") {
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Audit:
				if body.Outcome == "passed" {
					passed++
				} else if body.Outcome != "unclear" {
					t.Errorf("%s reports about an honest member: %+v", c.name, body)
				}
			case event.Accused, event.Ejected:
				t.Errorf("%s: %+v", c.name, body)
			}
		}
	}
	if passed == 0 {
		t.Error("no audit passed")
	}
	t.Logf("%d audits passed", passed)
}

// trainLocalSteps has members that train a run. One member is killed and returns, and its results
// must count again.
func trainLocalSteps(t *testing.T, r rules, lines, audits string) []*client {
	t.Helper()
	n := newNetwork(t, r)
	writeFile(t, n.state, []byte(localSteps(t, stateFile(r, n.data, n.model), lines)))
	if audits != "" {
		n.change("verification_percent = 0", audits)
		n.change("global_batch_size_start = 6", "global_batch_size_start = 12")
		n.change("global_batch_size_end = 6", "global_batch_size_end = 12")
	}
	n.startServer()
	var clients []*client
	for i := range r.clients {
		c := n.newClient(fmt.Sprintf("client-%d", i+1))
		c.start()
		clients = append(clients, c)
	}
	victim := clients[2]
	victim.waitPhase("RoundTrain", 5)
	victim.kill(t)
	victim.start()
	finish(t, clients...)
	checkRun(t, n, clients...)
	if !countedAgain(t, victim) {
		t.Error("no result of the restarted member counted")
	}
	return clients
}
