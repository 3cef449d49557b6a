package sim

import (
	"errors"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

var errProof = errors.New("it does not prove that two results were signed")

// refuse is what package server looks at before it applies an action: how many of one network take
// part, and proofs that two results were signed.
func (h *host) refuse(from coordinator.ClientID, a coordinator.Action) error {
	switch a := a.(type) {
	case coordinator.Join:
		return h.refuseSeat(from)
	case coordinator.Equivocation:
		return h.refuseProof(a)
	}
	return nil
}

// refuseSeat refuses a key that the run does not know when as many of its network as may are in the
// epoch, left it and may come back, or wait.
func (h *host) refuseSeat(from coordinator.ClientID) error {
	i, known := h.world.index[identity.ID(from)]
	if !known || h.world.machines[i].network != gangNetwork {
		return nil
	}
	taken := h.world.fromNetwork(&h.state)
	if !taken[from] && len(taken) >= h.world.plan.crew.size {
		return coordinator.ErrFull
	}
	return nil
}

func (h *host) refuseProof(a coordinator.Equivocation) error {
	if !wire.Proves(a, [32]byte{}) {
		return errProof
	}
	return nil
}

// fromNetwork returns who of the gang's network is in the newest epoch, was, or waits.
func (w *world) fromNetwork(s *coordinator.State) map[coordinator.ClientID]bool {
	there := make(map[coordinator.ClientID]bool)
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending} {
		for i := range clients {
			id := clients[i].ID
			if at, known := w.index[identity.ID(id)]; known && w.machines[at].network == gangNetwork {
				there[id] = true
			}
		}
	}
	return there
}
