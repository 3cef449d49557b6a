package core

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestClientDoesNotWaitForEjectedMembers checks that a client waits for all members without the
// final model except ejected ones, whether they are connected or not, and in whatever list of the
// state they are.
func TestClientDoesNotWaitForEjectedMembers(t *testing.T) {
	id := func(n byte) coordinator.ClientID { return coordinator.ClientID{n} }
	member := func(n byte, state coordinator.ClientState) coordinator.Client {
		return coordinator.Client{ID: id(n), State: state}
	}
	s := &coordinator.State{}
	s.Epoch.Clients = []coordinator.Client{
		member(1, coordinator.Healthy), member(2, coordinator.Healthy), member(3, coordinator.Dropped),
		member(4, coordinator.Ejected), member(5, coordinator.Ejected),
	}
	s.Epoch.Exited = []coordinator.Client{member(6, coordinator.Withdrawn), member(7, coordinator.Ejected)}
	s.Model.Checkpoint.Step = 7
	s.Epoch.Clients[1].Report.Step = 7
	c := &common{Options: Options{ID: id(1)}, state: s}
	f := &finish{back: make(map[coordinator.ClientID]bool)}
	if away, here := f.awaited(c, map[coordinator.ClientID]bool{id(3): true, id(4): true}); away != 1 || here != 1 {
		t.Errorf("waiting for %d absent and %d present members, want the withdrawn and the dropped one", away, here)
	}
}

// TestOnlyAModelOfTheLastRoundIsFinal checks that only a model of the last round is final in a
// finished run, whatever the run recorded.
func TestOnlyAModelOfTheLastRoundIsFinal(t *testing.T) {
	origin := coordinator.Checkpoint{Kind: coordinator.CheckpointLocal, Repo: "model"}
	peers := func(step uint32, digest byte) coordinator.Checkpoint {
		return coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: step, Digest: [32]byte{digest}}
	}
	model := func(step uint32, digest byte) *Model {
		return &Model{Step: step, Digest: [32]byte{digest}}
	}
	for name, test := range map[string]struct {
		recorded coordinator.Checkpoint
		held     *Model
		closed   bool
		want     FinalModel
	}{
		"the last, recorded":              {peers(9, 1), model(9, 1), false, ModelRecorded},
		"another of that step":            {peers(9, 1), model(9, 2), false, ModelOther},
		"an earlier one":                  {peers(9, 1), model(6, 2), false, ModelOld},
		"the last, unrecorded":            {peers(6, 1), model(9, 2), false, ModelUnrecorded},
		"an earlier one, recorded":        {peers(6, 1), model(6, 1), false, ModelOld},
		"the first, and none is recorded": {origin, &Model{Origin: origin}, false, ModelOld},
		"recorded, of a closed run":       {peers(6, 1), model(6, 1), true, ModelRecorded},
		"none":                            {peers(9, 1), nil, false, ModelNone},
	} {
		s := &coordinator.State{Closed: test.closed, OriginStep: 1}
		s.Progress.Step, s.Config.TotalSteps, s.Model.Checkpoint = 10, 9, test.recorded
		if test.closed {
			s.Config.TotalSteps = 20
		}
		if got := finalOf(test.held, s); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
