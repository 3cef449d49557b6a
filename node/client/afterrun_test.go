package client

import (
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/record/backend"
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
	v := &view{me: identity.ID(id(1)), state: s, peers: []backend.Peer{{ID: identity.ID(id(3))}, {ID: identity.ID(id(4))}}}
	p := &afterRun{back: make(map[coordinator.ClientID]bool)}
	if away, here := p.awaited(v); away != 1 || here != 1 {
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
	model := func(step uint32, digest byte) *modelsync.Model {
		return &modelsync.Model{Step: step, Digest: [32]byte{digest}}
	}
	for name, test := range map[string]struct {
		recorded coordinator.Checkpoint
		held     *modelsync.Model
		closed   bool
		want     finalModel
	}{
		"the last, recorded":              {peers(9, 1), model(9, 1), false, modelRecorded},
		"another of that step":            {peers(9, 1), model(9, 2), false, modelOther},
		"an earlier one":                  {peers(9, 1), model(6, 2), false, modelOld},
		"the last, unrecorded":            {peers(6, 1), model(9, 2), false, modelUnrecorded},
		"an earlier one, recorded":        {peers(6, 1), model(6, 1), false, modelOld},
		"the first, and none is recorded": {origin, &modelsync.Model{Origin: origin}, false, modelOld},
		"recorded, of a closed run":       {peers(6, 1), model(6, 1), true, modelRecorded},
		"none":                            {peers(9, 1), nil, false, modelNone},
	} {
		s := &coordinator.State{Closed: test.closed, OriginStep: 1}
		s.Progress.Step, s.Config.TotalSteps, s.Model.Checkpoint = 10, 9, test.recorded
		if test.closed {
			s.Config.TotalSteps = 20
		}
		if got := finalOf(test.held, &view{state: s}); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
