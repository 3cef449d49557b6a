package server

import (
	"testing"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// TestMembersOfTheLastEpochAreKnown: who was cut off at the end of a run finds a place when it
// comes back for the final model, however many strangers there are; but nobody is told where
// it is before that.
func TestMembersOfTheLastEpochAreKnown(t *testing.T) {
	h := &host{state: new(coordinator.State), registry: newRegistry(nil, nil)}
	h.state.RunState = coordinator.Finished
	h.state.Epoch.Clients = []coordinator.Client{{ID: coordinator.ClientID{1}}}
	h.state.Epoch.Exited = []coordinator.Client{{ID: coordinator.ClientID{2}, State: coordinator.Withdrawn}}
	h.state.Pending = []coordinator.Client{{ID: coordinator.ClientID{3}}}
	if found := h.participants(); len(found) != 0 {
		t.Errorf("participants without a connection: %v", found)
	}
	known := h.known()
	for n := range byte(3) {
		if !known[identity.ID{n + 1}] {
			t.Errorf("member %d of the last epoch is a stranger", n+1)
		}
	}
	h.registry.live[identity.ID{2}] = &connection{}
	if found := h.participants(); len(found) != 1 || !found[identity.ID{2}] {
		t.Errorf("participants: %v", found)
	}
}

// TestWhoIsKept wants a place for who left the running epoch and for every key with an office.
func TestWhoIsKept(t *testing.T) {
	h := &host{state: new(coordinator.State), registry: newRegistry(nil, nil)}
	h.state.RunState = coordinator.RoundTrain
	h.state.Epoch.Clients = []coordinator.Client{{ID: coordinator.ClientID{1}, State: coordinator.Dropped}}
	h.state.Epoch.Exited = []coordinator.Client{{ID: coordinator.ClientID{2}, State: coordinator.Withdrawn}}
	h.state.Host, h.state.Authority.Main, h.state.Authority.Join = coordinator.ClientID{3}, coordinator.ClientID{4}, coordinator.ClientID{5}
	for n := range byte(5) {
		if !h.known()[identity.ID{n + 1}] {
			t.Errorf("key %d finds no place", n+1)
		}
	}
	if len(h.participants()) != 0 {
		t.Errorf("participants %v, everybody left", h.participants())
	}
}
