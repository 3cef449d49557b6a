package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	ma "github.com/multiformats/go-multiaddr"
)

// A member behind a NAT or a firewall that cannot be dialled makes reservations at members that it
// can dial (circuit relay v2), and other members reach it through them. If both ends have public
// addresses, libp2p then tries hole punching (DCUtR). A node uses relays if it cannot reach some
// member by dialling. libp2p's own search for relays is not used, because it ignores relays on
// private addresses. libp2p's AutoNAT is not used either, because it dials back from a key that is
// not a member's, and such connections are refused.
const (
	// relaysWanted is the number of relays at which a member keeps reservations.
	relaysWanted = 3
	// relayAfter is how long some member must have been unreachable before this node asks relays for
	// reservations.
	relayAfter   = 2 * time.Second
	relayEvery   = time.Second
	reserveTime  = 5 * time.Second // for one attempt to get a reservation, or to connect through a relay
	relaysTried  = 6               // relays tried in one attempt to reach a member
	relayRefused = time.Minute     // pause before a relay that refused is asked again
	directEvery  = 30 * time.Second

	// Limits of a member that serves as a relay. They bound the memory for circuits. The circuits
	// also share the node's upload rate.
	maxReservations = 64
	maxCircuits     = 8 // of one member
	relayBuffer     = 32 << 10
	reservationTTL  = 10 * time.Minute
)

// relays contains a node's reservations at relays, and the relays that the operator configured.
type relays struct {
	static []peer.AddrInfo // configured by the operator, not members

	mu      sync.Mutex
	host    host.Host             // nil until it is created
	held    map[peer.ID]time.Time // expiry times
	refused map[peer.ID]time.Time // times of refusals
}

func parseRelays(texts []string) (*relays, error) {
	r := &relays{held: make(map[peer.ID]time.Time), refused: make(map[peer.ID]time.Time)}
	for _, text := range texts {
		info, err := peer.AddrInfoFromString(text)
		if err != nil {
			return nil, fmt.Errorf("%w: relay %q: %w; want an address that ends with /p2p/ and the relay's id", errOptions, text, err)
		}
		r.static = append(r.static, *info)
	}
	return r, nil
}

// isStatic reports whether the operator configured p as a relay.
func (r *relays) isStatic(p peer.ID) bool {
	return slices.ContainsFunc(r.static, func(i peer.AddrInfo) bool { return i.ID == p })
}

// addrs returns the addresses of the node through its relays.
func (r *relays) addrs() []ma.Multiaddr {
	r.mu.Lock()
	h := r.host
	r.mu.Unlock()
	if h == nil {
		return nil
	}
	var addrs []ma.Multiaddr
	for _, p := range r.reserved() {
		known := h.Peerstore().Addrs(p)
		if len(known) == 0 {
			continue
		}
		slices.SortFunc(known, func(a, b ma.Multiaddr) int { return a.Compare(b) })
		for _, addr := range known {
			if isTCP(addr) || isQUIC(addr) {
				addrs = append(addrs, addr.Encapsulate(through(p)))
			}
		}
	}
	return addrs[:min(len(addrs), maxAddrs)]
}

// reserved returns the relays with a reservation, in order.
func (r *relays) reserved() []peer.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var reserved []peer.ID
	for p, until := range r.held {
		if time.Now().Before(until) {
			reserved = append(reserved, p)
		}
	}
	slices.Sort(reserved)
	return reserved
}

// through returns the circuit address that leads through the connected relay p.
func through(p peer.ID) ma.Multiaddr {
	return ma.StringCast("/p2p/" + p.String() + "/p2p-circuit")
}

// serveRelay makes this node a relay between members.
func (n *Node) serveRelay(h host.Host) (*relay.Relay, error) {
	return relay.New(throttledHost{h, n},
		relay.WithACL(membersOnly{n, &reservationTable{}}),
		// Circuits may carry everything, including models. Only their number and the rate are
		// limited.
		relay.WithResources(relay.Resources{
			ReservationTTL: reservationTTL, MaxReservations: maxReservations, MaxCircuits: maxCircuits,
			BufferSize:           relayBuffer,
			MaxReservationsPerIP: maxReservations, MaxReservationsPerASN: maxReservations,
		}),
		relay.WithReservationAddressFilter(func(ma.Multiaddr) bool { return true }))
}

// membersOnly permits relaying only between members.
type membersOnly struct {
	n            *Node
	reservations *reservationTable
}

func (m membersOnly) AllowReserve(p peer.ID, from ma.Multiaddr) bool {
	m.n.mu.Lock()
	known, ok := m.n.members[p]
	waits := ok && known.waits
	m.n.mu.Unlock()
	return ok && m.reservations.take(p, from, waits, m.n.isDirect, time.Now())
}

func (m membersOnly) AllowConnect(from peer.ID, _ ma.Multiaddr, to peer.ID) bool {
	return m.n.Allows(from) && m.n.Allows(to)
}

// throttledHost is the host passed to the relay service. It makes forwarded data share the node's
// upload rate.
type throttledHost struct {
	host.Host
	n *Node
}

func (h throttledHost) SetStreamHandler(name protocol.ID, handle network.StreamHandler) {
	h.Host.SetStreamHandler(name, func(s network.Stream) { handle(h.wrap(s)) })
}

func (h throttledHost) NewStream(ctx context.Context, p peer.ID, names ...protocol.ID) (network.Stream, error) {
	s, err := h.Host.NewStream(ctx, p, names...)
	if err != nil {
		return nil, err
	}
	return h.wrap(s), nil
}

func (h throttledHost) wrap(s network.Stream) network.Stream {
	if h.n.upload == nil {
		return s
	}
	return throttledStream{s, throttled{h.n.ctx, h.n.upload, s}}
}

type throttledStream struct {
	network.Stream
	w throttled
}

func (s throttledStream) Write(p []byte) (int, error) { return s.w.Write(p) }

// keepRelays maintains reservations at relays while some members cannot be reached directly.
func (n *Node) keepRelays() {
	ticker := time.NewTicker(relayEvery)
	defer ticker.Stop()
	var isolated time.Time // time since which a member is unreachable
	for {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		switch {
		case !n.missesDirect():
			isolated = time.Time{}
		case isolated.IsZero():
			isolated = time.Now()
		}
		if len(n.listen) == 0 || !isolated.IsZero() && time.Since(isolated) >= relayAfter {
			n.reserve()
		}
		select {
		case <-n.ctx.Done():
			return
		case <-changed:
		case <-ticker.C:
		}
	}
}

// missesDirect reports whether there is a member without a direct connection.
func (n *Node) missesDirect() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.members {
		if !n.isDirect(p) {
			return true
		}
	}
	return false
}

// reserve makes reservations until there are enough, and renews reservations that expire soon.
func (n *Node) reserve() {
	r := n.relays
	r.mu.Lock()
	maps.DeleteFunc(r.refused, func(_ peer.ID, at time.Time) bool { return time.Since(at) > relayRefused })
	valid := 0
	for p, until := range r.held {
		if !n.isDirect(p) || time.Now().After(until) {
			delete(r.held, p)
		} else if time.Until(until) > reservationTTL/2 {
			valid++
		}
	}
	r.mu.Unlock()
	for _, p := range n.candidates() {
		if valid >= relaysWanted || n.ctx.Err() != nil {
			return
		}
		if n.reserveAt(p) {
			valid++
		}
	}
}

// candidates returns the relays to ask for a reservation, in order: first the configured relays,
// then members without penalties. Each node has another order of members, to distribute the load.
func (n *Node) candidates() []peer.ID {
	r := n.relays
	r.mu.Lock()
	defer r.mu.Unlock()
	usable := func(p peer.ID) bool {
		if until, held := r.held[p]; held && time.Until(until) > reservationTTL/2 {
			return false
		}
		return time.Since(r.refused[p]) > relayRefused
	}
	var ids []peer.ID
	for _, info := range r.static {
		if usable(info.ID) {
			ids = append(ids, info.ID)
		}
	}
	var members []peer.ID
	for _, p := range n.relaying() {
		if usable(p) && !r.isStatic(p) {
			members = append(members, p)
		}
	}
	slices.SortFunc(members, func(a, b peer.ID) int { return bytes.Compare(n.distance(a), n.distance(b)) })
	return append(ids, members...)
}

// distance is a sort key that orders members differently for every node.
func (n *Node) distance(p peer.ID) []byte {
	id, _ := Identity(p)
	for i := range id {
		id[i] ^= n.id[i]
	}
	return id[:]
}

// relaying returns the members that relay for other members and have a direct connection to this
// node. Avoided members are omitted.
func (n *Node) relaying() []peer.ID {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []peer.ID
	for p, m := range n.members {
		if !n.isDirect(p) || n.Avoids(m.id) {
			continue
		}
		if known, err := n.host.Peerstore().SupportsProtocols(p, proto.ProtoIDv2Hop); err == nil && len(known) > 0 {
			ids = append(ids, p)
		}
	}
	slices.Sort(ids)
	return ids
}

// reservationEnds returns when a reservation ends, by this machine's monotonic clock and at most
// reservationTTL from now. A configured relay sends the time by its own clock, and either clock may
// be wrong or be set later. A member always grants reservationTTL, so reservationEnds ignores the
// time that it sends. If the member's clock were slow, that time would be so near that this node
// would reserve again every second.
func reservationEnds(now, expiration time.Time, atMember bool) time.Time {
	if atMember {
		return now.Add(reservationTTL)
	}
	return now.Add(min(expiration.Sub(now), reservationTTL))
}

func (n *Node) reserveAt(p peer.ID) bool {
	ctx, cancel := context.WithTimeout(n.ctx, reserveTime)
	defer cancel()
	info := peer.AddrInfo{ID: p}
	for _, static := range n.relays.static {
		if static.ID == p {
			info = static
		}
	}
	granted, err := circuit.Reserve(ctx, n.host, info)
	n.relays.mu.Lock()
	defer n.relays.mu.Unlock()
	if err != nil {
		n.relays.refused[p] = time.Now()
		n.logger.Debug("p2p: no reservation at a relay", "relay", p, "err", err)
		return false
	}
	n.relays.held[p] = reservationEnds(time.Now(), granted.Expiration, !n.relays.isStatic(p))
	n.logger.Info("p2p: reachable through a relay", "relay", p, "until", granted.Expiration)
	return true
}

// dialThroughRelays tries to reach a member through the relays that may have a reservation for it.
func (n *Node) dialThroughRelays(ctx context.Context, m *member) {
	n.mu.Lock()
	vias := slices.Clone(m.vias)
	n.mu.Unlock()
	for _, info := range n.relays.static {
		vias = append(vias, info.ID)
	}
	vias = append(vias, n.relaying()...)
	tried := make(map[peer.ID]bool)
	for _, via := range vias {
		if tried[via] || via == m.peerID || via == n.peerID || len(tried) == relaysTried {
			continue
		}
		tried[via] = true
		if n.dialThrough(ctx, m, via) || ctx.Err() != nil {
			return
		}
	}
}

func (n *Node) dialThrough(ctx context.Context, m *member, via peer.ID) bool {
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	for _, info := range n.relays.static {
		if info.ID == via {
			n.host.Peerstore().AddAddrs(via, info.Addrs, peerstore.TempAddrTTL)
		}
	}
	n.clearBackoff(m.peerID)
	err := n.host.Connect(ctx, peer.AddrInfo{ID: m.peerID, Addrs: []ma.Multiaddr{through(via)}})
	if err != nil {
		n.logger.Debug("p2p: dial through a relay", "member", m.id.Short(), "relay", via, "err", err)
		return false
	}
	n.logger.Info("p2p: member is reached through a relay", "member", m.id.Short(), "relay", via)
	return true
}

// tryDirect tries from time to time to connect directly to a member that is reached through a
// relay.
func (n *Node) tryDirect(ctx context.Context, m *member) {
	n.mu.Lock()
	addrs := m.addrs
	n.mu.Unlock()
	if len(addrs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(network.WithForceDirectDial(ctx, "reached through a relay"), dialTimeout)
	defer cancel()
	n.clearBackoff(m.peerID)
	if err := n.host.Connect(ctx, peer.AddrInfo{ID: m.peerID, Addrs: addrs}); err != nil && !errors.Is(err, context.Canceled) {
		n.logger.Debug("p2p: no direct connection", "member", m.id.Short(), "err", err)
	}
}
