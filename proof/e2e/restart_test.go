package e2e

import (
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

func TestServerKilled(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: 4, steps: 12})
	n.startServer()
	clients := n.startClients(3)
	for _, moment := range []struct {
		runState string
		step     uint32
	}{
		{"RoundTrain", 2},
		{"RoundWitness", 3},
		{"Cooldown", 5}, // its step is the step of the next round
		{"RoundTrain", 7},
		{"Warmup", 9},
	} {
		clients[0].waitPhase(moment.runState, moment.step)
		n.server.kill(t)
		n.startServer()
	}
	digest := finish(t, clients...)
	checkRun(t, n, clients...)
	for _, c := range clients {
		checkStayed(t, c, 12)
	}
	checkServerStates(t, n)
	last := clients[0].events()
	if finished := last[len(last)-1].Body.(event.Finished); finished.Step != 12 {
		t.Errorf("finished at step %d with %s, want 12", finished.Step, digest)
	}
}

func TestClientKilled(t *testing.T) {
	t.Parallel()
	// Epochs of this many rounds last until a fast machine has killed a client.
	const steps = 90
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: steps / 3, steps: steps})
	n.startServer()
	clients := n.startClients(3)
	victim := clients[2]
	victim.waitPhase("RoundTrain", 2)
	victim.kill(t)
	victim.start()
	finish(t, clients...)
	checkRun(t, n, clients...)
	for _, c := range clients[:2] {
		checkStayed(t, c, steps)
	}

	rejoined := waitFor[event.Rejoined](victim)
	if rejoined.Step < 2 { // the other members may have waited for it in the same round
		t.Errorf("rejoined at step %d, was killed in step 2", rejoined.Step)
	}
	var source string
	trained := 0
	for _, e := range victim.events() {
		switch body := e.Body.(type) {
		case event.Ready:
			source = body.Source
			if body.Epoch == rejoined.Epoch && body.Epoch > 0 && (body.Source != "peers" || body.Bytes == 0) {
				t.Errorf("the model of epoch %d came from %q, %d bytes; want it from peers", body.Epoch, body.Source, body.Bytes)
			}
		case event.Trained:
			if body.Step >= rejoined.Step {
				trained++
			}
		}
	}
	if source == "" || trained == 0 {
		t.Errorf("after its return the client trained %d batches (source of the model: %q)", trained, source)
	}
}
