package serve_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote"
)

// TestLostSequences reads batches with lost sequences, also from a server that restarts. Each batch has one receipt. Two
// rounds may have the same positions with other sequences, if a predicted round did not begin: their receipts do not
// contradict each other.
func TestLostSequences(t *testing.T) {
	source := open(t, data.Options{}, local(folder(t)))
	server := start(t, source, "127.0.0.1:0", nil)
	var clients []*remote.Client
	for i, lost := range [][]coordinator.Stretch{
		{{Start: 1, End: 3, Tries: 1}, {Start: 5, End: 6, Tries: 2}, {Start: 9, End: 11, Tries: 1}},
		{{Start: 1, End: 3, Tries: 1}, {Start: 8, End: 9, Tries: 2}, {Start: 9, End: 10, Tries: 1}},
	} {
		s := state(2, 3, 1)
		s.Config.RetryLost = true
		round := &s.Epoch.Rounds[0]
		round.Retries, round.Seed = lost, uint64(i)
		s.Progress.DataIndex = round.NextData()
		if i > 0 {
			server.stop()
			server = start(t, source, server.address, nil)
		}
		server.Update(s, runHash)
		intervals := 0
		for n := range byte(2) {
			if i == 0 {
				clients = append(clients, connect(t, options(server, n+1)))
			}
			id := owned(t, s, n+1)
			from := round.Sequences(id)
			intervals += len(from)
			want, err := data.Gather(t.Context(), source, id, from, false)
			if err != nil {
				t.Fatal(err)
			}
			receipt := data.SignReceipt(serverKey, runHash, from, want.Hash())
			want.Receipt = &receipt
			for _, audit := range []bool{false, true} {
				got, err := data.Gather(t.Context(), clients[n], id, from, audit)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("client %d, audit %v: %v (-want +got):\n%s", n+1, audit, err, diff)
				}
			}
		}
		if intervals < 4 {
			t.Errorf("the batches have %d intervals in all", intervals)
		}
	}
	if _, err := clients[0].Gather(t.Context(), assign.BatchID{End: 3}, []assign.BatchID{{End: 2}}, false); err == nil {
		t.Error("read fewer sequences than the batch has")
	}
}
