package p2p

import (
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// A key that waits for a seat costs nothing, and an address little: neither gets all places of a
// relay. So many of the maxReservations may clients have that only wait, and those of one network.
const (
	maxWaitingPlaces = maxReservations / 2
	maxNetworkPlaces = maxReservations / 4
)

// placeTable knows who holds the places at this node as a relay.
type placeTable struct {
	mu     sync.Mutex
	places map[peer.ID]reservation
}

type reservation struct {
	network netip.Prefix
	waits   bool // its holder has no seat in the run
	until   time.Time
}

// take reports whether p, reached at an address, may have a place or keep its own, and notes that
// it has. Of the others those count that are there still.
func (t *placeTable) take(p peer.ID, from ma.Multiaddr, waits bool, there func(peer.ID) bool, now time.Time) bool {
	network := networkOf(from)
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, near := 0, 0
	for other, held := range t.places {
		switch {
		case other == p:
		case now.After(held.until) || !there(other):
			delete(t.places, other)
		default:
			if held.waits {
				waiting++
			}
			if held.network == network {
				near++
			}
		}
	}
	if waits && waiting >= maxWaitingPlaces || near >= maxNetworkPlaces {
		delete(t.places, p)
		return false
	}
	if t.places == nil {
		t.places = make(map[peer.ID]reservation)
	}
	t.places[p] = reservation{network, waits, now.Add(reservationTTL)}
	return true
}

// networkOf is the network of an address: /24 of IPv4, /48 of IPv6; all others are one.
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
	network, _ := addr.Prefix(bits) // it has that many bits
	return network
}
