package server

import (
	"net"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/admission"
)

// origin returns the network that an address is of, and how many seats that may have.
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
	h.logger.Warn("all clients come from one address, perhaps of a proxy, a NAT or a tunnel; then nothing limits the seats of one stranger; set --max-seats-per-private-network",
		"address", joins.IP, "clients", len(others)+1)
}

// addressesOf returns from where the live connections of keys come.
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
