package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/ledger"
)

// TestLostSequencesReturn kills a client while it trains, and restarts it later. Another round must train the
// sequences of the killed client's batch, and every sequence must count once, except sequences of the last rounds.
func TestLostSequencesReturn(t *testing.T) {
	if clientBinary == "" {
		t.Skip(noTorch)
	}
	t.Parallel()
	r := rules{clients: 3, minClients: 2, roundsPerEpoch: 10, steps: 20}
	n := newNetwork(t, r)
	state := strings.Replace(stateFile(r, n.data, n.model), "[config]\n", "[config]\nretry_lost = true\n", 1)
	writeFile(t, n.state, []byte(dummyModel(state)))
	n.startServer()
	var clients []*client
	for _, name := range []string{"client-1", "client-2", "client-3"} {
		c := n.newClient(name)
		c.env = []string{"DUMMY_TRAINING_DELAY_SECS=0.8"}
		c.start()
		clients = append(clients, c)
	}
	victim := clients[2]
	victim.waitPhase("RoundTrain", 4)
	time.Sleep(100 * time.Millisecond) // it trains
	victim.kill(t)
	clients[0].waitPhase("RoundTrain", 7) // without it, at least one batch is lost
	victim.start()
	finish(t, clients...)
	checkRun(t, n, clients...)

	var book ledger.Ledger
	var lost []coordinator.Stretch
	var retried []assign.BatchID
	final, _, err := server.Replay(server.JournalPath(n.saved, "e2e"), func(_ follow.Record, s *coordinator.State) error {
		for _, stretch := range s.Lost {
			if !slices.Contains(lost, stretch) {
				lost = append(lost, stretch)
			}
		}
		if round := s.CurrentRound(); round != nil {
			for _, stretch := range round.Retries {
				if part := (assign.BatchID{Start: stretch.Start, End: stretch.End}); !slices.Contains(retried, part) {
					retried = append(retried, part)
				}
			}
		}
		return book.See(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	totals := book.Totals()
	if out := must(t, serverBinary, "run", "replay", server.JournalPath(n.saved, "e2e")); !strings.Contains(out, "sequences       "+totals.String()) {
		t.Errorf("the replay does not count %v:\n%s", totals, out)
	}
	t.Logf("lost %v, retried %v, fates %v of %d sequences", lost, retried, totals, final.State.Progress.DataIndex)
	if len(retried) == 0 || totals[ledger.Counted]+totals[ledger.Waiting] != final.State.Progress.DataIndex {
		t.Errorf("the killed client's sequences did not return")
	}
	if totals[ledger.Waiting] > 12 { // two rounds
		t.Errorf("%d sequences wait at the end of the run, want at most 12", totals[ledger.Waiting])
	}
}
