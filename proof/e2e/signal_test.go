package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
)

// interrupted is the exit code of a program that Ctrl-C ended.
const interrupted = 130

func TestClientInterrupted(t *testing.T) {
	t.Parallel()
	// Epochs of this many rounds last until a fast machine has interrupted a client.
	const steps = 60
	n := newNetwork(t, rules{clients: 3, minClients: 2, roundsPerEpoch: steps / 2, steps: steps})
	// With this grace period, only the client itself can give up its seat in time.
	n.startServer("--withdraw-grace", "1h")
	clients := n.startClients(3)
	leaver, others := clients[2], clients[:2]
	leaver.waitPhase("RoundTrain", 2)
	leaver.interrupt(t)
	if code := leaver.exitCode(t, promptExit); code != interrupted {
		t.Errorf("the client ended with exit code %d, want %d", code, interrupted)
	}
	noPanic(t, leaver.name, leaver.text(t))
	without := func(s event.State) bool { return len(s.Members) == 2 && !slices.Contains(s.Members, leaver.id) }
	waitEvent(t, filepath.Join(n.dir, "server", "events.jsonl"), "the place of the client is withdrawn", func(body event.Body) bool {
		state, ok := body.(event.State)
		return ok && without(state)
	})
	// An epoch begins with init_min_clients: the other clients wait for the third.
	others[0].waitState("the run waits", func(s event.State) bool { return s.RunState == "WaitingForMembers" && s.Epoch == 1 })
	leaver.start()
	finish(t, clients...)
	checkRun(t, n, clients...)
	for _, c := range others {
		checkStayed(t, c, steps)
	}
	if withdrawn := withdrawals(t, n, leaver); withdrawn != 1 {
		t.Errorf("the server accepted %d withdrawals of the client, want 1", withdrawn)
	}
}

// withdrawals counts in the journal how often a client gave up its seat itself. Other members, and
// the server, can only remove it.
func withdrawals(t *testing.T, n *network, c *client) (count int) {
	t.Helper()
	_, _, err := server.Replay(server.JournalPath(n.saved, "e2e"), func(r follow.Record, _ *coordinator.State) error {
		own := r.Kind == follow.KindAction && r.Action.From.String() == c.id
		if _, leaves := r.Action.Action.(coordinator.Withdraw); own && leaves {
			count++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func TestServerInterrupted(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 3, steps: 6})
	n.startServer()
	clients := n.startClients(2)
	clients[0].waitPhase("RoundTrain", 2)
	n.server.interrupt(t)
	if code := n.server.exitCode(t, promptExit); code != 0 {
		t.Errorf("the server ended with exit code %d", code)
	}
	noPanic(t, n.server.Name, n.server.text(t))
	for _, c := range clients {
		c.waitText(t, "cannot connect to the server, trying again", 2)
	}
	n.startServer()
	finish(t, clients...)
	checkRun(t, n, clients...)
	checkServerStates(t, n)
}

func TestClientInterruptedWithoutServer(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 3, steps: 6})
	n.startServer()
	connected := n.newClient("connected")
	connected.start()
	waitFor[event.Joined](connected)
	n.server.kill(t)
	connected.waitText(t, "trying again", 1)
	never := n.newClient("never-connected")
	never.start()
	never.waitText(t, "trying again", 1)
	for _, c := range []*client{connected, never} {
		c.interrupt(t)
		if code := c.exitCode(t, promptExit); code != interrupted {
			t.Errorf("%s ended with exit code %d, want %d", c.name, code, interrupted)
		}
		noPanic(t, c.name, c.text(t))
	}
}
