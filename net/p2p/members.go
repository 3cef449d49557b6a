package p2p

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/psyche-go/psyche/base/identity"
)

const (
	dialTimeout = 15 * time.Second
	// answerDelay is how long the member with the larger ID waits for the other member to dial
	// first, so that two members rarely end up with two connections.
	answerDelay = time.Second
	firstRetry  = 200 * time.Millisecond
	lastRetry   = 15 * time.Second
	// stableAfter is how long a connection must have lasted before the pause between dials is reset
	// to firstRetry. A member that does not know this node yet accepts a connection and then hangs
	// up.
	stableAfter = 3 * time.Second
)

// member is one allowed peer with the goroutine that keeps this node connected to it.
type member struct {
	id     identity.ID
	peerID peer.ID
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: connection or addresses changed

	// Guarded by Node.mu.
	addrs       []ma.Multiaddr // from the list of members
	waits       bool           // it has no seat in the run
	learned     []ma.Multiaddr // from peers or the local network
	vias        []peer.ID      // relays in its learned addresses
	seq         uint64         // sequence number of the learned addresses
	renewed     bool           // addresses changed since the last dial
	lastRequest time.Time      // when peers were last asked for its addresses
}

func compareIDs(a, b identity.ID) int { return bytes.Compare(a[:], b[:]) }

// SetMembers replaces the list of peers that may connect to this node and that it connects to. The
// node disconnects and refuses members that are no longer in the list, dials new ones, and uses
// changed addresses. It logs and skips unusable addresses. The list may contain the node itself.
// SetMembers does not wait for dials.
func (n *Node) SetMembers(members []Peer) {
	wanted := make(map[peer.ID]Peer, len(members))
	for _, m := range members {
		p, err := PeerID(m.ID)
		if err != nil {
			n.logger.Warn("p2p: member left out", "member", m.ID.Short(), "err", err)
			continue
		}
		if p != n.peerID {
			wanted[p] = m
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	for p, m := range n.members {
		if _, keep := wanted[p]; !keep {
			n.revoke(m)
		}
	}
	for p, w := range wanted {
		n.admit(p, w)
	}
}

// revoke removes m. The caller must hold n.mu. Closing a connection may wait for the peer, so
// another goroutine does that. All other decisions already use the new list.
func (n *Node) revoke(m *member) {
	delete(n.members, m.peerID)
	m.cancel()
	n.host.Peerstore().ClearAddrs(m.peerID)
	n.wg.Go(func() {
		n.bulk.drop(m.peerID)
		if err := n.host.Network().ClosePeer(m.peerID); err != nil {
			n.logger.Debug("p2p: disconnect former member", "member", m.id.Short(), "err", err)
		}
	})
}

// admit adds a member or updates its addresses. The caller must hold n.mu.
func (n *Node) admit(p peer.ID, w Peer) {
	addrs := n.usableAddrs(p, w)
	m, known := n.members[p]
	if known {
		m.waits = w.Waits
	}
	if known && slices.EqualFunc(m.addrs, addrs, ma.Multiaddr.Equal) {
		return
	}
	if !known {
		ctx, cancel := context.WithCancel(n.ctx)
		m = &member{id: w.ID, peerID: p, waits: w.Waits, cancel: cancel, wake: make(chan struct{}, 1)}
		n.members[p] = m
		n.wg.Go(func() { n.keepConnected(ctx, m) })
	}
	m.addrs, m.renewed = addrs, true
	n.host.Peerstore().ClearAddrs(p)
	n.host.Peerstore().AddAddrs(p, addrs, peerstore.PermanentAddrTTL)
	m.signal()
}

func (n *Node) usableAddrs(p peer.ID, w Peer) []ma.Multiaddr {
	addrs := make([]ma.Multiaddr, 0, min(len(w.Addrs), maxAddrs))
	for _, text := range w.Addrs {
		if len(addrs) == maxAddrs {
			n.logger.Warn("p2p: addresses left out", "member", w.ID.Short(), "given", len(w.Addrs), "used", maxAddrs)
			break
		}
		addr, err := parseAddr(p, text)
		if err != nil {
			n.logger.Warn("p2p: address left out", "member", w.ID.Short(), "err", err)
			continue
		}
		addrs = append(addrs, addr)
	}
	return addrs
}

// IsMember reports whether id is the node itself or a member in the current list.
func (n *Node) IsMember(id identity.ID) bool {
	p, err := PeerID(id)
	return err == nil && n.Allows(p)
}

// Allows is IsMember for a libp2p peer ID.
func (n *Node) Allows(p peer.ID) bool {
	if p == n.peerID {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isAllowed(p)
}

// isAllowed is Allows for callers that hold n.mu.
func (n *Node) isAllowed(p peer.ID) bool {
	_, ok := n.members[p]
	return ok || p == n.peerID
}

// mayConnect reports whether a connection to or from p may exist: p is a member, or a relay that the
// operator configured.
func (n *Node) mayConnect(p peer.ID) bool { return n.Allows(p) || n.relays.isStatic(p) }

// WaitConnected waits until connections to all ids exist at the same time. It returns the error of
// ctx if ctx ends first.
func (n *Node) WaitConnected(ctx context.Context, ids ...identity.ID) error {
	for {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		missing := slices.DeleteFunc(slices.Clone(ids), func(id identity.ID) bool {
			p, err := PeerID(id)
			return err == nil && (p == n.peerID || n.isConnected(p))
		})
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for connection to %s and %d more: %w", missing[0].Short(), len(missing)-1, ctx.Err())
		case <-n.ctx.Done():
			return ErrClosed
		}
	}
}

// Relayed reports whether a member can be reached only through a relay.
func (n *Node) Relayed(id identity.ID) bool {
	p, err := PeerID(id)
	if err != nil {
		return false
	}
	return n.isConnected(p) && !n.isDirect(p)
}

// Reaches reports whether a direct connection to a member exists.
func (n *Node) Reaches(id identity.ID) bool {
	p, err := PeerID(id)
	return err == nil && n.isDirect(p)
}

// isDirect reports whether a connection to p exists that does not use a relay.
func (n *Node) isDirect(p peer.ID) bool {
	return slices.ContainsFunc(n.host.Network().ConnsToPeer(p), func(c network.Conn) bool { return !isCircuit(c.RemoteMultiaddr()) })
}

func (n *Node) isConnected(p peer.ID) bool {
	return n.host.Network().Connectedness(p) == network.Connected
}

// onConnected closes a connection whose member was revoked while it was established.
func (n *Node) onConnected(c network.Conn) {
	if !n.mayConnect(c.RemotePeer()) {
		n.run(func() { _ = c.Close() })
		return
	}
	n.noteIP(c)
	if id, ok := Identity(c.RemotePeer()); ok {
		n.records.connected(id)
	}
	n.onChange(c.RemotePeer())
}

// onDisconnected closes a member's bulk connections when its last ordinary connection has closed.
func (n *Node) onDisconnected(c network.Conn) {
	p := c.RemotePeer()
	n.noteIP(c)
	if !n.isConnected(p) {
		n.bulk.drop(p)
	}
	n.onChange(p)
}

// onChange wakes callers that wait for connections, and the member's own goroutine.
func (n *Node) onChange(p peer.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
	if m, ok := n.members[p]; ok {
		m.signal()
	}
}

func (m *member) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// keepConnected dials m whenever no connection exists, with growing pauses, until ctx
// ends.
func (n *Node) keepConnected(ctx context.Context, m *member) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval, retry.Multiplier = firstRetry, lastRetry, 2
	next := time.Now()
	if compareIDs(n.id, m.id) > 0 {
		next = next.Add(answerDelay)
	}
	for ctx.Err() == nil {
		if n.isConnected(m.peerID) {
			since := time.Now()
			n.waitDisconnected(ctx, m)
			if time.Since(since) >= stableAfter {
				retry.Reset()
			}
			next = time.Now().Add(retry.NextBackOff())
			continue
		}
		if wait := time.Until(next); wait > 0 {
			if n.sleep(ctx, m, wait) {
				retry.Reset()
				next = time.Now()
			}
			continue
		}
		n.dial(ctx, m)
		next = time.Now().Add(retry.NextBackOff())
	}
}

func (n *Node) waitDisconnected(ctx context.Context, m *member) {
	ticker := time.NewTicker(directEvery)
	defer ticker.Stop()
	for n.isConnected(m.peerID) {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-ticker.C:
			if !n.isDirect(m.peerID) {
				n.tryDirect(ctx, m)
			}
		}
	}
}

// sleep waits for the given time, for a change of m's connections, or for ctx. It reports whether m
// has new addresses that have not been dialled yet.
func (n *Node) sleep(ctx context.Context, m *member, wait time.Duration) (renewed bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	case <-m.wake:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	renewed = m.renewed && compareIDs(n.id, m.id) < 0
	m.renewed = false
	return renewed
}

// dial tries all paths to a member: its addresses, then relays. If none works, it asks other
// members for its addresses.
func (n *Node) dial(ctx context.Context, m *member) {
	n.mu.Lock()
	addrs := slices.Concat(m.addrs, m.learned)
	m.renewed = false
	n.mu.Unlock()
	if len(addrs) > 0 {
		n.dialDirect(ctx, m, addrs)
	}
	if n.useRelays && !n.isConnected(m.peerID) && ctx.Err() == nil {
		n.dialThroughRelays(ctx, m)
	}
	if !n.isConnected(m.peerID) && ctx.Err() == nil {
		n.askWhere(ctx, m)
	}
}

func (n *Node) dialDirect(ctx context.Context, m *member, addrs []ma.Multiaddr) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	n.clearBackoff(m.peerID)
	if err := n.host.Connect(ctx, peer.AddrInfo{ID: m.peerID, Addrs: addrs}); err != nil {
		n.logger.Debug("p2p: dial", "member", m.id.Short(), "err", err)
	}
}

// clearBackoff removes libp2p's pauses between dials, because this package pauses between dials
// itself.
func (n *Node) clearBackoff(p peer.ID) {
	if s, ok := n.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(p)
	}
}
