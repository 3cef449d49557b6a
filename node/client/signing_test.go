package client

import (
	"log/slog"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/keep"
)

// TestRecall checks which steps a client believes an earlier process may have signed.
func TestRecall(t *testing.T) {
	me := coordinator.ClientID{1}
	in := func(phase coordinator.RunState, step uint32, members ...coordinator.ClientID) *coordinator.State {
		s := &coordinator.State{RunState: phase, Progress: coordinator.Progress{Step: step}}
		s.Epoch.Rounds = []coordinator.Round{{Step: step, Members: members}}
		return s
	}
	for name, test := range map[string]struct {
		noted uint32 // 0: there is no folder
		state *coordinator.State
		want  uint32
	}{
		"a round runs":                     {0, in(coordinator.RoundTrain, 7, me), 7},
		"a round is witnessed":             {0, in(coordinator.RoundWitness, 7, me), 7},
		"a round of others runs":           {0, in(coordinator.RoundTrain, 7, coordinator.ClientID{2}), 6},
		"no round runs":                    {0, in(coordinator.Warmup, 7), 6},
		"noted in the running round":       {7, in(coordinator.RoundTrain, 7, me), 7},
		"noted in an earlier round":        {5, in(coordinator.RoundTrain, 7, me), 5},
		"noted in a round that is to come": {9, in(coordinator.RoundTrain, 7, me), 9},
	} {
		t.Run(name, func(t *testing.T) {
			folder := keep.Folder{RunID: clienttest.RunID}
			if test.noted > 0 {
				folder.Dir = t.TempDir()
			}
			before, after := signing{folder: folder, run: [32]byte{3}}, signing{folder: folder}
			if _, err := before.record(test.noted); err != nil {
				t.Fatal(err)
			}
			after.recall([32]byte{3}, me, test.state, slog.New(slog.DiscardHandler))
			if after.Newest() != test.want || after.May(test.want) || !after.May(test.want+1) {
				t.Errorf("newest %d, want %d", after.Newest(), test.want)
			}
		})
	}
}
