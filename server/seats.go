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
	if _, joins := a.Action.(coordinator.Join); !joins {
		return verdict{}, false
	}
	h.warnOfOneAddress(from)
	network, most := h.seatNetwork(from)
	if most == 0 {
		return verdict{}, false
	}
	taken := 0
	for id, other := range h.seatedFrom() {
		if other == network && id != a.From {
			taken++
		}
	}
	if h.known()[a.From] || taken < most {
		h.origins[a.From] = network
		return verdict{}, false
	}
	h.logRefusal("refused a join", "client", a.From, "network", network, "seats", taken)
	return verdict{coordinator.ErrFull, fmt.Sprintf("%d clients of the network %s take part, and the server lets no more of one in", taken, network)}, true
}

// seatNetwork returns the network that an address is of, and how many seats it may have; 0: as many as
// there are.
func (h *host) seatNetwork(from net.Addr) (network netip.Prefix, most int) {
	network, private := admission.SeatNetwork(from)
	switch {
	case !network.IsValid():
		return network, 0
	case private:
		return network, h.options.MaxSeatsPerPrivateNetwork
	default:
		return network, max(0, h.options.MaxSeatsPerNetwork)
	}
}

// fewFromOne is how many clients may come from one address, and no others from elsewhere, before that is
// remarkable.
const fewFromOne = 4

// warnOfOneAddress says once that all clients come from one address: then strangers do as well, and no
// bound for each address or network keeps one of them from taking all there is.
func (h *host) warnOfOneAddress(from net.Addr) {
	joins, ok := from.(*net.TCPAddr)
	if !ok || h.oneAddress {
		return
	}
	others := h.registry.addressesOf(h.lastEpoch())
	if len(others) < fewFromOne {
		return
	}
	for _, other := range others {
		if tcp, ok := other.(*net.TCPAddr); !ok || !tcp.IP.Equal(joins.IP) {
			return
		}
	}
	h.oneAddress = true
	h.logger.Warn("all clients come from one address: if a proxy, a NAT or a tunnel is there, strangers come from it too, and nothing bounds what one of them takes; --max-seats-per-private-network bounds seats also of private networks",
		"address", joins.IP, "clients", len(others)+1)
}

// seatedFrom returns the networks of who is in the newest epoch, left it or waits: where each is
// connected from, or came from when it was let in. A host that starts again knows only the former.
func (h *host) seatedFrom() map[identity.ID]netip.Prefix {
	seated := h.lastEpoch()
	maps.DeleteFunc(h.origins, func(id identity.ID, _ netip.Prefix) bool { return !seated[id] })
	for id, address := range h.registry.addressesOf(seated) {
		if network, most := h.seatNetwork(address); most > 0 {
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
