package p2p

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/privatenet"
)

// Members say themselves where they are, so a dial may go to somebody who is no member at all. At
// IP addresses where a member has proved its key it is dialled as often as need be, elsewhere little.
const (
	// provenFor is how long an IP address counts as a member's after it was last seen there.
	provenFor = time.Hour
	// unprovenAtOnce and unprovenEvery bound the dials to one member's addresses at other IPs:
	// enough for a member with two addresses to start some seconds later than we do.
	unprovenAtOnce = 12
	unprovenEvery  = 15 * time.Minute
	// lonelyEvery is what is added while no member at all is connected.
	lonelyEvery = time.Minute
	// relayedAtOnce and relayedEvery are what is added for a member that is reached through a
	// relay: libp2p then punches a way at the addresses that it gives.
	relayedAtOnce = 6
	relayedEvery  = 10 * time.Minute
	// allAtOnce and allEvery bound them over all members.
	allAtOnce = 1024
	allEvery  = time.Second / 2
	// One address is tried with pauses that double, up to lastUnproven.
	firstUnproven = 200 * time.Millisecond
	lastUnproven  = 4 * time.Hour
	// sameDial is how long an address that may be dialled may be asked about again: the library
	// asks for every attempt that joins a dial.
	sameDial = time.Second

	maxIPsProven   = 16
	maxAddrsTried  = 64
	maxDialRecords = 1024
)

// dials are what is known about where members are, and how often they were dialled elsewhere.
type dials struct {
	mu  sync.Mutex
	all *rate.Limiter
	by  map[peer.ID]*dialRecord
}

// dialRecord outlives a membership: leaving and joining again gives nobody more dials.
type dialRecord struct {
	proven   map[netip.Addr]time.Time // IP addresses, and when the member was last seen there
	unproven *rate.Limiter
	lonely   *rate.Limiter
	relayed  *rate.Limiter
	tried    map[string]*attempts // by address
}

// attempts are those at one address.
type attempts struct {
	count      int
	last, next time.Time
}

func newDials() *dials {
	return &dials{all: rate.NewLimiter(rate.Every(allEvery), allAtOnce), by: make(map[peer.ID]*dialRecord)}
}

// record returns what is known about a peer. The caller holds mu.
func (d *dials) record(p peer.ID, isMember func(peer.ID) bool) *dialRecord {
	r := d.by[p]
	if r != nil {
		return r
	}
	if len(d.by) >= maxDialRecords {
		for other := range d.by {
			if !isMember(other) {
				delete(d.by, other)
			}
		}
	}
	r = &dialRecord{
		proven:   make(map[netip.Addr]time.Time),
		unproven: rate.NewLimiter(rate.Every(unprovenEvery), unprovenAtOnce),
		lonely:   rate.NewLimiter(rate.Every(lonelyEvery), 1),
		relayed:  rate.NewLimiter(rate.Every(relayedEvery), relayedAtOnce),
		tried:    make(map[string]*attempts),
	}
	d.by[p] = r
	return r
}

// seen notes that a member has proved its key at an IP address.
func (d *dials) seen(p peer.ID, ip netip.Addr, isMember func(peer.ID) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, now := d.record(p, isMember), time.Now()
	for other, at := range r.proven {
		if now.Sub(at) >= provenFor {
			delete(r.proven, other)
		}
	}
	if _, known := r.proven[ip]; known || len(r.proven) < maxIPsProven {
		r.proven[ip] = now
	}
}

// allow reports whether a member may be dialled at an address now, and counts it.
func (d *dials) allow(p peer.ID, ip netip.Addr, addr string, reach func() reach, isMember func(peer.ID) bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, now := d.record(p, isMember), time.Now()
	if at, known := r.proven[ip]; known && now.Sub(at) < provenFor {
		return true
	}
	a := r.attemptsAt(addr, now)
	switch {
	case a == nil:
		return false
	case a.count > 0 && now.Sub(a.last) < sameDial:
		return true
	case !r.spend(a, now, reach()) || !d.all.AllowN(now, 1):
		return false
	}
	pause := min(firstUnproven<<min(a.count, 20), lastUnproven)
	a.count, a.last, a.next = a.count+1, now, now.Add(pause)
	return true
}

// spend reports whether one more dial at an address is within the bounds, and counts it.
func (r *dialRecord) spend(a *attempts, now time.Time, reach reach) bool {
	due := !now.Before(a.next)
	switch {
	case due && r.unproven.AllowN(now, 1):
		return true
	case reach == reachedByRelay:
		return r.relayed.AllowN(now, 1)
	case reach == reachesNobody && (due || now.Sub(a.last) >= lonelyEvery):
		return r.lonely.AllowN(now, 1)
	}
	return false
}

// attemptsAt returns what is known about an address, nil when there is no room for another one.
func (r *dialRecord) attemptsAt(addr string, now time.Time) *attempts {
	if a := r.tried[addr]; a != nil {
		return a
	}
	if len(r.tried) >= maxAddrsTried {
		for other, a := range r.tried {
			if now.Sub(a.last) >= lastUnproven {
				delete(r.tried, other)
			}
		}
	}
	if len(r.tried) >= maxAddrsTried {
		return nil
	}
	a := &attempts{}
	r.tried[addr] = a
	return a
}

// mayDial reports whether a peer may be dialled at an address, which has no name in it any more.
func (n *Node) mayDial(p peer.ID, addr ma.Multiaddr) bool {
	if n.relays.isStatic(p) {
		return true
	}
	if !n.Allows(p) {
		return false
	}
	if isCircuit(addr) {
		return true
	}
	ip, ok := ipOf(addr)
	if !ok || !mayReach(n.ownIPs(), ip) {
		return false
	}
	return n.dials.allow(p, ip, addr.String(), func() reach { return n.reachOf(p) }, n.Allows)
}

// reach is what is known of the way to a member that is not where it is dialled.
type reach int

const (
	reachesOthers  reach = iota // some other member is connected
	reachesNobody               // none is: it may be our own line
	reachedByRelay              // the member is, through a relay: it may open a direct way right now
)

func (n *Node) reachOf(p peer.ID) reach {
	switch {
	case n.isConnected(p):
		return reachedByRelay
	case len(n.Connected()) == 0:
		return reachesNobody
	}
	return reachesOthers
}

// mayReach reports whether a node with these addresses and another IP may be on the same network: the
// IP is public, or an address of the node is of the same inner network. A node that listens
// beyond its machine has nothing to do with what listens on the machine alone.
func mayReach(own []netip.Addr, ip netip.Addr) bool {
	if privatenet.Public(ip) {
		return true
	}
	network, ok := privatenet.Range(ip)
	if !ok {
		return false
	}
	if slices.Contains(privatenet.Loopback, network) {
		return !slices.ContainsFunc(own, func(a netip.Addr) bool { return !a.IsLoopback() })
	}
	return slices.ContainsFunc(own, func(a netip.Addr) bool {
		of, ok := privatenet.Range(a)
		return ok && of == network
	})
}

// ownIPs returns the addresses that the node listens on; none when it listens nowhere.
func (n *Node) ownIPs() []netip.Addr {
	addrs, err := n.host.Network().InterfaceListenAddresses()
	if err != nil {
		n.logger.Debug("p2p: own addresses", "err", err)
	}
	var ips []netip.Addr
	for _, addr := range addrs {
		if ip, ok := ipOf(addr); ok {
			ips = append(ips, ip)
		}
	}
	return ips
}

// noteIP remembers that a direct connection leads to a member's IP address.
func (n *Node) noteIP(c network.Conn) {
	if isCircuit(c.RemoteMultiaddr()) {
		return
	}
	if ip, ok := ipOf(c.RemoteMultiaddr()); ok {
		n.dials.seen(c.RemotePeer(), ip, n.Allows)
	}
}

// ipOf returns the IP address that an address begins with.
func ipOf(addr ma.Multiaddr) (netip.Addr, bool) {
	raw, err := manet.ToIP(addr)
	if err != nil {
		return netip.Addr{}, false
	}
	found, ok := netip.AddrFromSlice(raw)
	return found.Unmap(), ok
}
