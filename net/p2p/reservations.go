package p2p

import (
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Limits that keep a relay's reservations available. A key without a seat costs an attacker
// nothing, and an address little. Therefore clients without a seat together get only
// maxWaitingReservations of the maxReservations, and the clients of one network get
// maxNetworkReservations.
const (
	maxWaitingReservations = maxReservations / 2
	maxNetworkReservations = maxReservations / 4
)

// reservationTable contains the reservations that other nodes have at this node, which is their
// relay.
type reservationTable struct {
	mu           sync.Mutex
	reservations map[peer.ID]reservation
}

type reservation struct {
	network netip.Prefix
	waits   bool // its holder has no seat in the run
	until   time.Time
}

// take reports whether p, connected from the address from, may make or renew a reservation, and if
// so stores it. Reservations of other clients count only if their holders are still connected
// (there).
func (t *reservationTable) take(p peer.ID, from ma.Multiaddr, waits bool, there func(peer.ID) bool, now time.Time) bool {
	network := networkOf(from)
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, near := 0, 0
	for other, held := range t.reservations {
		switch {
		case other == p:
		case now.After(held.until) || !there(other):
			delete(t.reservations, other)
		default:
			if held.waits {
				waiting++
			}
			if held.network == network {
				near++
			}
		}
	}
	if waits && waiting >= maxWaitingReservations || near >= maxNetworkReservations {
		delete(t.reservations, p)
		return false
	}
	if t.reservations == nil {
		t.reservations = make(map[peer.ID]reservation)
	}
	t.reservations[p] = reservation{network, waits, now.Add(reservationTTL)}
	return true
}

// networkOf returns the network of an address: /24 of IPv4, /48 of IPv6; all others count as one
// network.
func networkOf(a ma.Multiaddr) netip.Prefix {
	ip, err := manet.ToIP(a)
	addr, ok := netip.AddrFromSlice(ip)
	if err != nil || !ok {
		return netip.Prefix{}
	}
	bits := 48
	if addr = addr.Unmap(); addr.Is4() {
		bits = 24
	}
	network, _ := addr.Prefix(bits) // addr has at least that many bits
	return network
}
