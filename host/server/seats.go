package server

import (
	"net"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/admission"
)

// origin returns the network of an address and the limit of its seats.
func (h *host) origin(from net.Addr) core.Origin {
	network, private := admission.SeatNetwork(from)
	switch {
	case !network.IsValid():
		return core.Origin{}
	case private:
		return core.Origin{Network: network, Most: h.server.options.MaxSeatsPerPrivateNetwork}
	default:
		return core.Origin{Network: network, Most: max(0, h.server.options.MaxSeatsPerNetwork)}
	}
}

// fewFromOne is the maximum number of clients, all from one address, without a warning.
const fewFromOne = 4

// warnOfOneAddress warns once if all clients come from one address. Then unknown clients share the
// address of the members, so the limits per address and network cannot stop one operator from taking
// all seats.
func (h *host) warnOfOneAddress(from net.Addr) {
	joins, ok := from.(*net.TCPAddr)
	if !ok || h.oneAddress {
		return
	}
	others := h.registry.addressesOf(h.core.Seated())
	if len(others) < fewFromOne {
		return
	}
	for _, other := range others {
		if tcp, ok := other.(*net.TCPAddr); !ok || !tcp.IP.Equal(joins.IP) {
			return
		}
	}
	h.oneAddress = true
	h.logger.Warn("all clients come from one address, perhaps a proxy, a NAT or a tunnel, so nothing limits the seats of one operator; set --max-seats-per-private-network",
		"address", joins.IP, "clients", len(others)+1)
}

// addressesOf returns the addresses of the live connections of keys.
func (r *registry) addressesOf(ids []identity.ID) (addresses []net.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if c := r.live[id]; c != nil {
			addresses = append(addresses, c.conn.RemoteAddr())
		}
	}
	return addresses
}
