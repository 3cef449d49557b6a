package server

import (
	"fmt"
	"maps"
	"net"
	"net/netip"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server/admission"
	"github.com/psyche-go/psyche/wire"
)

// seatRefused is the verdict on a Join of a key that the run does not know, from a network whose
// clients have as many seats as one network may. What the journal has does not depend on it: the
// host leaves out what it might have lost. Who left a running epoch counts as well, since it may take
// its seat back: else a network would give its seats up, let others in, and come back.
func (h *host) seatRefused(a wire.SignedAction, from net.Addr) (v verdict, refused bool) {
	if _, joins := a.Action.(coordinator.Join); !joins || h.options.MaxSeatsPerNetwork < 0 {
		return verdict{}, false
	}
	network, bounded := admission.SeatNetwork(from)
	if !bounded {
		return verdict{}, false
	}
	taken := 0
	for id, other := range h.seatedFrom() {
		if other == network && id != a.From {
			taken++
		}
	}
	if h.known()[a.From] || taken < h.options.MaxSeatsPerNetwork {
		h.origins[a.From] = network
		return verdict{}, false
	}
	h.logRefusal("refused a join", "client", a.From, "network", network, "seats", taken)
	return verdict{coordinator.ErrFull, fmt.Sprintf("%d clients of the network %s take part, and the server lets no more of one in", taken, network)}, true
}

// seatedFrom returns the networks of who is in the newest epoch, left it or waits: where each is
// connected from, or came from when it was let in. A host that starts again knows only the former.
func (h *host) seatedFrom() map[identity.ID]netip.Prefix {
	seated := h.lastEpoch()
	maps.DeleteFunc(h.origins, func(id identity.ID, _ netip.Prefix) bool { return !seated[id] })
	for id, address := range h.registry.addressesOf(seated) {
		if network, bounded := admission.SeatNetwork(address); bounded {
			h.origins[id] = network
		} else {
			delete(h.origins, id)
		}
	}
	return h.origins
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
