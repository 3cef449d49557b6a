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

// Members announce their own addresses, so a dial may go to a host that is not a member. Dials to IP
// addresses where a member has proved its key are unlimited. Dials to other addresses are limited.
const (
	// provenFor is how long after a member was last seen at an IP address dials to it are unlimited.
	provenFor = time.Hour
	// unprovenAtOnce and unprovenEvery limit the dials to one member's addresses at other IPs. They
	// suffice for a member with two addresses that starts some seconds later than this node.
	unprovenAtOnce = 12
	unprovenEvery  = 15 * time.Minute
	// isolatedEvery is the interval of additional dials to one member while no member is connected.
	isolatedEvery = time.Minute
	// relayedAtOnce and relayedEvery allow additional dials to a member that is reached through a
	// relay, because libp2p then tries hole punching at the addresses that the member announces.
	relayedAtOnce = 6
	relayedEvery  = 10 * time.Minute
	// allAtOnce and allEvery are the limits over all members.
	allAtOnce = 1024
	allEvery  = time.Second / 2
	// Dials to one address have pauses that start with firstUnproven and double up to lastUnproven.
	firstUnproven = 200 * time.Millisecond
	lastUnproven  = 4 * time.Hour
	// sameDial is how long a dial to an address stays allowed without being counted again. libp2p
	// asks for permission separately for every attempt that joins the same dial.
	sameDial = time.Second

	maxIPsProven   = 16
	maxAddrsTried  = 64
	maxDialRecords = 1024
)

// dials contains the known IP addresses of members, and the numbers of dials to other addresses.
type dials struct {
	mu  sync.Mutex
	all *rate.Limiter
	by  map[peer.ID]*dialRecord
}

// dialRecord contains the dials to one peer. It outlives the membership, so that a member cannot get
// additional dials by leaving and joining again.
type dialRecord struct {
	proven   map[netip.Addr]time.Time // IP addresses, with the time when the member was last seen there
	unproven *rate.Limiter
	isolated *rate.Limiter
	relayed  *rate.Limiter
	tried    map[string]*attempts // by address
}

// attempts counts the dials to one address.
type attempts struct {
	count      int
	last, next time.Time
}

func newDials() *dials {
	return &dials{all: rate.NewLimiter(rate.Every(allEvery), allAtOnce), by: make(map[peer.ID]*dialRecord)}
}

// record returns the record of a peer. The caller must hold mu.
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
		isolated: rate.NewLimiter(rate.Every(isolatedEvery), 1),
		relayed:  rate.NewLimiter(rate.Every(relayedEvery), relayedAtOnce),
		tried:    make(map[string]*attempts),
	}
	d.by[p] = r
	return r
}

// seen records that a member has proved its key at an IP address.
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

// allow reports whether a member may be dialled at an address now, and counts the dial.
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

// spend reports whether one more dial to an address is within the limits, and counts it.
func (r *dialRecord) spend(a *attempts, now time.Time, reach reach) bool {
	due := !now.Before(a.next)
	switch {
	case due && r.unproven.AllowN(now, 1):
		return true
	case reach == reachedByRelay:
		return r.relayed.AllowN(now, 1)
	case reach == reachesNobody && (due || now.Sub(a.last) >= isolatedEvery):
		return r.isolated.AllowN(now, 1)
	}
	return false
}

// attemptsAt returns the attempts for an address, or nil if there is no space for another address.
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

// mayDial reports whether a peer may be dialled at an address. Names in the address have already
// been resolved.
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

// reach describes the existing connections when a member is dialled at an address where it has not
// proved its key.
type reach int

const (
	reachesOthers  reach = iota // another member is connected
	reachesNobody               // no member is connected: this node's own link may be down
	reachedByRelay              // the member is connected through a relay: hole punching may be in progress
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

// mayReach reports whether a node that listens on the addresses own may be able to reach ip: ip is
// public, or it is in the same private network as one of own. A node that also listens on other than
// loopback addresses does not dial loopback addresses.
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

// ownIPs returns the addresses that the node listens on; none if it does not listen.
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

// noteIP records the IP address of a direct connection, where a member has proved its key.
func (n *Node) noteIP(c network.Conn) {
	if isCircuit(c.RemoteMultiaddr()) {
		return
	}
	if ip, ok := ipOf(c.RemoteMultiaddr()); ok {
		n.dials.seen(c.RemotePeer(), ip, n.Allows)
	}
}

// ipOf returns the IP address at the start of an address.
func ipOf(addr ma.Multiaddr) (netip.Addr, bool) {
	raw, err := manet.ToIP(addr)
	if err != nil {
		return netip.Addr{}, false
	}
	found, ok := netip.AddrFromSlice(raw)
	return found.Unmap(), ok
}
