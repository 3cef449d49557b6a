package core

import (
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// MaxNames bounds Names: twice as many are kept as clients can be in an epoch, have left it and wait.
const MaxNames = 2 * 3 * coordinator.MaxClients

// Names are what clients of a run call themselves: by the newest Join of each. No rule depends on them.
type Names map[identity.ID]string

// Note takes in an action that was accepted, and led to the state s.
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
