package client

import (
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// TestNobodyWaitsForTheEjected: of those that lack the final model a client waits for all but the
// ejected, whether they are connected or not, and wherever the state has them.
func TestNobodyWaitsForTheEjected(t *testing.T) {
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
	p := &parting{back: make(map[coordinator.ClientID]bool)}
	if away, here := p.awaited(v); away != 1 || here != 1 {
		t.Errorf("%d are away and %d here that are waited for, want the withdrawn and the dropped one", away, here)
	}
}
