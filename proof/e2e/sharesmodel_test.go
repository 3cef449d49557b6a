package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/ledger"
)

// TestSharesOfAModel trains a model with shares by speed, audits and returning sequences. The speeds of five
// members are 1:2:4:4:4. One of the fast members is killed and returns, and the server is killed. No member
// may be accused, no other member may be late or lose its seat, and every sequence must count or wait.
func TestSharesOfAModel(t *testing.T) {
	for name, optimizer := range map[string]string{"DisTrO": "", "local steps": "error_decay = 0.95\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needClient(t)
			n := newNetwork(t, rules{clients: 5, minClients: 2, roundsPerEpoch: 12, steps: 24})
			if optimizer != "" {
				writeFile(t, n.state, []byte(localSteps(t, stateFile(rules{5, 2, 12, 24}, n.data, n.model), optimizer)))
			}
			n.divideBySpeed(80)
			n.change("verification_percent = 0", "verification_percent = 30\nretry_lost = true")
			n.startServer()
			var clients []*client
			for i, each := range []time.Duration{40, 20, 10, 10, 10} {
				clients = append(clients, n.startThrottled(fmt.Sprintf("client-%d", i+1), each*time.Millisecond))
			}
			victim := clients[4]
			victim.waitPhase("RoundTrain", 5)
			time.Sleep(100 * time.Millisecond) // it trains
			victim.kill(t)
			clients[0].waitPhase("RoundTrain", 8)
			victim.startAltered("throttled", "-each", victim.eachPath())
			clients[0].waitPhase("RoundTrain", 16)
			n.server.kill(t)
			n.startServer()
			t.Logf("digest %s", finish(t, clients...))
			checkRun(t, n, clients...)
			checkServerStates(t, n)
			checkModelShares(t, n, clients, victim)
			checkNoSuspicion(t, clients)
		})
	}
}

// checkModelShares checks the batches of TestSharesOfAModel, its members, and the fates of its sequences.
func checkModelShares(t *testing.T, n *network, clients []*client, victim *client) {
	t.Helper()
	sums := make([]uint64, len(clients))
	for _, r := range readShares(t, n) {
		t.Log(r.step, r.of(clients), r.unfit) // a member without a batch audits, or the victim is away
		for i, size := range r.of(clients) {
			sums[i] += size
		}
		for _, unfit := range r.unfit {
			if !strings.HasPrefix(unfit, victim.id[:4]) {
				t.Errorf("step %d: late or gone: %v", r.step, unfit)
			}
		}
	}
	if sums[0] >= sums[2] || sums[0] >= sums[3] {
		t.Errorf("sequences of all rounds: %v", sums)
	}
	var book ledger.Ledger
	final, _, err := server.Replay(server.JournalPath(n.saved, "e2e"), func(_ follow.Record, s *coordinator.State) error { return book.See(s) })
	if err != nil {
		t.Fatal(err)
	}
	totals, used := book.Totals(), final.State.Progress.DataIndex
	t.Logf("%d sequences: %v", used, totals)
	if totals[ledger.Counted]+totals[ledger.Waiting] != used {
		t.Errorf("fates of %d sequences: %v", used, totals)
	}
	if used == 24*80 {
		t.Error("no sequence of the killed member returned")
	}
}

// checkNoSuspicion checks that audits passed, and that no member suspected another.
func checkNoSuspicion(t *testing.T, clients []*client) {
	t.Helper()
	outcomes := make(map[string]int)
	for _, c := range clients {
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Audit:
				outcomes[body.Outcome]++
				if body.Outcome != "passed" && body.Outcome != "unclear" {
					t.Errorf("%s reports about an honest member: %+v", c.name, body)
				}
			case event.Accused, event.Ejected, event.Misbehaved:
				t.Errorf("%s: %+v", c.name, body)
			}
		}
	}
	if t.Logf("audits: %v", outcomes); outcomes["passed"] == 0 {
		t.Error("no audit passed")
	}
}
