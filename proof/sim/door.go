package sim

import (
	"errors"
	"net/netip"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/record/wire"
)

var errProof = errors.New("it does not prove that two results were signed")

// connection reports whether a key's connection stands, and from where it comes.
func (h *host) connection(id identity.ID) (from core.Origin, live bool) {
	i, known := h.world.index[id]
	if !known || !h.connected(i) {
		return from, false
	}
	return h.world.machines[i].origin(), true
}

// connected reports whether a client's connection stands and this is the history that it is shown.
// The gang acts in all of them.
func (h *host) connected(i int) bool {
	w := h.world
	m := w.machines[i]
	return h.up && (m.history() == h || m.lies(Gang)) && (w.healed || w.cutHost[i] == 0) && m.process != nil
}

// origin is from where a client connects, and how many seats those may have that do from there.
func (m *machine) origin() core.Origin {
	if m.network != gangNetwork {
		return core.Origin{}
	}
	return core.Origin{Network: netip.MustParsePrefix("203.0.113.0/24"), Most: m.world.plan.crew.size}
}

// fromNetwork returns the clients of the gang's network that are in the newest epoch, were, or wait.
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

// startsOf returns the heads at the starts of a state's rounds.
func (h *host) startsOf(s *coordinator.State) []wire.Head {
	starts := make([]wire.Head, 0, len(s.Epoch.Rounds))
	for _, round := range s.Epoch.Rounds {
		starts = append(starts, h.starts[round.Step])
	}
	return starts
}
