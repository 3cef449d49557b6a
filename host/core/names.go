package core

import (
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// MaxNames bounds Names. It is twice the possible number of clients that are in an epoch, have left
// it or are pending.
const MaxNames = 2 * 3 * coordinator.MaxClients

// Names maps each client to the display name in its newest Join. No rule depends on names.
type Names map[identity.ID]string

// Note updates the names after the accepted action a, which led to the state s.
func (n Names) Note(from coordinator.ClientID, a coordinator.Action, s *coordinator.State) {
	join, is := a.(coordinator.Join)
	if !is {
		return
	}
	name := wire.NameOf(join)
	if name == "" {
		delete(n, identity.ID(from))
		return
	}
	if len(n) == MaxNames {
		seated := make(map[identity.ID]bool)
		for _, id := range seatedIn(s) {
			seated[id] = true
		}
		for id := range n {
			if !seated[id] {
				delete(n, id)
			}
		}
	}
	n[identity.ID(from)] = name
}
