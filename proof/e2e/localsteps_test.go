package e2e

import (
	"strings"
	"testing"
)

// localSteps replaces the optimizer of a state.toml by one of three steps in a round.
func localSteps(t *testing.T, text string) string {
	t.Helper()
	before, _, found := strings.Cut(text, "[model.LLM.optimizer.")
	if !found {
		t.Fatalf("no optimizer in\n%s", text)
	}
	return before + `[model.LLM.optimizer.LocalSteps]
inner_steps = 3
betas = [0.9, 0.99]
clip_grad_norm = 1.0
outer_momentum = 0.5
compression_topk = 16
compression_chunk = 16
`
}

// TestLocalSteps: members that make several steps of their own in a round, with a real model; one is killed
// and comes back. All end with the same model.
func TestLocalSteps(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	r := rules{clients: 3, minClients: 2, roundsPerEpoch: 12, steps: 24}
	n := newNetwork(t, r)
	writeFile(t, n.state, []byte(localSteps(t, stateFile(r, n.data, n.model))))
	n.startServer()
	var clients []*client
	for _, name := range []string{"client-1", "client-2", "client-3"} {
		c := n.newClient(name)
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
		t.Error("no result counted of the member that came back")
	}
}
