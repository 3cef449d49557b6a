package server

import (
	"fmt"
	"net"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server/admission"
	"github.com/psyche-go/psyche/wire"
)

// seatRefused is the verdict on a Join of a key that the run does not know, from a network whose
// clients have as many seats as one network may. What the journal has does not depend on it: the
// host leaves out what it might have lost.
func (h *host) seatRefused(a wire.SignedAction, from net.Addr) (v verdict, refused bool) {
	if _, joins := a.Action.(coordinator.Join); !joins || h.options.MaxSeatsPerNetwork < 0 {
		return verdict{}, false
	}
	network, bounded := admission.SeatNetwork(from)
	if !bounded || h.known()[a.From] {
		return verdict{}, false
	}
	taken := 0
	for id, address := range h.registry.addressesOf(h.participants()) {
		if other, ok := admission.SeatNetwork(address); ok && other == network && id != a.From {
			taken++
		}
	}
	if taken < h.options.MaxSeatsPerNetwork {
		return verdict{}, false
	}
	h.logRefusal("refused a join", "client", a.From, "network", network, "seats", taken)
	return verdict{coordinator.ErrFull, fmt.Sprintf("%d clients of the network %s take part, and the server lets no more of one in", taken, network)}, true
}

// addressesOf returns from where the live connections of keys come.
func (r *registry) addressesOf(ids map[identity.ID]bool) map[identity.ID]net.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	addresses := make(map[identity.ID]net.Addr, len(r.live))
	for id, c := range r.live {
		if ids[id] {
			addresses[id] = c.conn.RemoteAddr()
		}
	}
	return addresses
}
