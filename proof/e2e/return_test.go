package e2e

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// TestReturnWithinTheEpoch kills a client in round 6 of an epoch of 25 rounds and restarts it. It
// must train in the same epoch, and its results must count. The other members wait for it no longer
// than witnesses do.
func TestReturnWithinTheEpoch(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	r := rules{clients: 3, minClients: 2, roundsPerEpoch: 25, steps: 30}
	n := newNetwork(t, r)
	writeFile(t, n.state, []byte(dummyModel(stateFile(r, n.data, n.model))))
	n.startServer()
	var clients []*client
	for _, name := range []string{"client-1", "client-2", "client-3"} {
		c := n.newClient(name)
		c.env = []string{"DUMMY_TRAINING_DELAY_SECS=0.8"}
		c.start()
		clients = append(clients, c)
	}
	victim := clients[2]
	victim.waitPhase("RoundTrain", 6)
	time.Sleep(100 * time.Millisecond) // it trains
	victim.kill(t)
	died := time.Now()
	victim.start()
	finish(t, clients...)
	checkRun(t, n, clients...)
	for _, c := range clients[:2] {
		checkStayed(t, c, r.steps)
	}

	if rejoined := waitFor[event.Rejoined](victim); rejoined.Epoch != 0 {
		t.Errorf("rejoined in epoch %d at step %d, want epoch 0", rejoined.Epoch, rejoined.Step)
	}
	counted := 0
	var again time.Time
	for _, e := range victim.events() {
		if trained, ok := e.Body.(event.Trained); ok && again.IsZero() && e.Time.After(died) {
			again = e.Time
			t.Logf("it has trained step %d %v after it was killed", trained.Step, again.Sub(died))
		}
		if applied, ok := e.Body.(event.Applied); ok && applied.Step > 6 && applied.Step <= 25 && applied.OwnCounted {
			counted++
		}
	}
	if counted < 3 {
		t.Errorf("%d of its results counted in the epoch of the kill", counted)
	}
	var begun time.Time
	var longest time.Duration
	for _, e := range clients[0].events() {
		if state, ok := e.Body.(event.State); ok && state.RunState == "RoundTrain" && state.Witnesses == 0 && state.Step <= 25 {
			if !begun.IsZero() {
				longest = max(longest, e.Time.Sub(begun))
			}
			begun = e.Time
		}
	}
	t.Logf("the longest round took %v", longest)
	if longest > 10*time.Second { // of the 30 s that the round may last
		t.Errorf("a round took %v", longest)
	}
}
