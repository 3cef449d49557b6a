package p2p

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	ma "github.com/multiformats/go-multiaddr"
)

// A bulk connection carries the exchanges of one protocol, one after the other, over a separate TCP
// connection to the port that the peer already listens on. The port recognizes it by its first
// bytes, which belong to TLS: other connections start with bytes of multistream-select. The TLS
// certificates are libp2p's, so the peer is identified by the same key. TLS's ALPN contains the
// protocol name. After the handshake the listening side sends bulkReady, or hangs up if the peer may
// not send. Only members may use bulk connections, and only while an ordinary connection exists.
//
// The multiplexer of ordinary connections copies every byte once more on each side, which costs
// about as much as decrypting it. A bulk connection avoids this.
const (
	bulkReady = 1 // the byte that ends the handshake

	// bulkPerPeer is the maximum number of connections to one member, and of connections from it.
	// libp2p allows 8 in each direction, and ordinary connections need some of them.
	bulkPerPeer    = 4
	bulkTotal      = 256 // maximum number of connections
	bulkHandshakes = 32  // maximum number of connections during their handshake, which unknown clients may start
	// bulkHandshakeTime is the time limit for a handshake on the listening side. The dialling side
	// waits only for bulkDialTime. This is shorter than the time that a holder of a blob may be
	// silent, so that the fetch can use an ordinary stream instead.
	bulkHandshakeTime = 5 * time.Second
	bulkDialTime      = 1500 * time.Millisecond
	// bulkIdle is how long the dialling side keeps an unused connection. The listening side waits
	// longer, so that no request arrives on a connection that is being closed.
	bulkIdle       = 15 * time.Second
	bulkServerIdle = 60 * time.Second
	// bulkRetry is the pause after a failed attempt to reach a member with a bulk connection.
	bulkRetry = 5 * time.Minute
)

var (
	errBulk       = errors.New("no bulk connection")
	errEnoughBulk = errors.New("enough bulk connections")
)

// bulk contains the bulk connections of a node.
type bulk struct {
	node     *Node
	identity *libp2ptls.Identity
	ports    *tcpreuse.ConnMgr

	mu        sync.Mutex // never held while waiting, or while acquiring Node.mu
	closed    bool
	listeners []transport.GatedMaListener
	servers   map[string]*streamServer
	shaking   int
	conns     map[*bulkConn]struct{}
	failed    map[peer.ID]time.Time // time of the last failed connection
}

func newBulk(n *Node, key crypto.PrivKey) (*bulk, error) {
	id, err := libp2ptls.NewIdentity(key)
	if err != nil {
		return nil, fmt.Errorf("bulk connections: %w", err)
	}
	return &bulk{
		node: n, identity: id, servers: make(map[string]*streamServer),
		conns: make(map[*bulkConn]struct{}), failed: make(map[peer.ID]time.Time),
	}, nil
}

// listen accepts bulk connections on the TCP ports that the host listens on.
func (b *bulk) listen(h host.Host) error {
	for _, addr := range h.Network().ListenAddresses() {
		if !isTCP(addr) {
			continue
		}
		l, err := b.ports.DemultiplexedListen(addr, tcpreuse.DemultiplexedConnType_TLS)
		if err != nil {
			return fmt.Errorf("bulk connections on %s: %w", addr, err)
		}
		b.listeners = append(b.listeners, l)
		b.node.run(func() { b.accept(l) })
	}
	return nil
}

// close closes all connections. The node waits for their goroutines.
func (b *bulk) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	for _, l := range b.listeners {
		_ = l.Close()
	}
	b.drop("")
}

// drop closes the bulk connections of a peer, or of all peers if p is empty.
func (b *bulk) drop(p peer.ID) {
	b.mu.Lock()
	var ended []*bulkConn
	for c := range b.conns {
		if p == "" || c.peer == p {
			ended = append(ended, c)
		}
	}
	b.mu.Unlock()
	for _, c := range ended {
		c.close()
	}
}

// serve sets the server of a protocol; nil removes it.
func (b *bulk) serve(name string, v *streamServer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v == nil {
		delete(b.servers, name)
		return
	}
	b.servers[name] = v
}

func (b *bulk) accept(l transport.GatedMaListener) {
	for {
		raw, scope, err := l.Accept()
		if err != nil {
			return
		}
		if !b.begin() || !b.node.run(func() { b.welcome(raw, scope) }) {
			_ = raw.Close()
			scope.Done()
		}
	}
}

// begin counts a new handshake, if the limits permit it.
func (b *bulk) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shaking >= bulkHandshakes || len(b.conns) >= bulkTotal {
		return false
	}
	b.shaking++
	return true
}

// welcome serves one connection until it ends.
func (b *bulk) welcome(raw net.Conn, scope network.ConnManagementScope) {
	c, v, err := b.admit(raw, scope)
	b.mu.Lock()
	b.shaking--
	b.mu.Unlock()
	if err != nil {
		b.node.logger.Debug("p2p: bulk connection refused", "from", raw.RemoteAddr(), "err", err)
		_ = raw.Close()
		scope.Done()
		return
	}
	defer c.close()
	for c.await(bulkServerIdle) && b.node.Allows(c.peer) {
		if err := v.exchange(c.id, bulkStream{Conn: c, used: new(sync.Once)}); err != nil {
			b.node.logger.Debug("p2p: bulk exchange failed", "protocol", v.name, "from", c.id.Short(), "err", err)
			return
		}
	}
}

// admit performs the handshake with a peer and decides whether to serve it.
func (b *bulk) admit(raw net.Conn, scope network.ConnManagementScope) (*bulkConn, *streamServer, error) {
	ctx, cancel := context.WithTimeout(b.node.ctx, bulkHandshakeTime)
	defer cancel()
	b.mu.Lock()
	names := slices.Sorted(maps.Keys(b.servers))
	b.mu.Unlock()
	c, err := b.shake(ctx, raw, scope, "", names, tls.Server)
	if err != nil {
		return nil, nil, err
	}
	b.node.unproven.shown(raw.RemoteAddr())
	b.mu.Lock()
	v := b.servers[c.name]
	b.mu.Unlock()
	if v == nil {
		return nil, nil, fmt.Errorf("%w: protocol %q", errBulk, c.name)
	}
	if !b.node.isConnected(c.peer) {
		return nil, nil, fmt.Errorf("%w: no ordinary connection", errBulk)
	}
	if err := b.add(c); err != nil {
		return nil, nil, err
	}
	if _, err := c.Write([]byte{bulkReady}); err != nil {
		b.remove(c)
		return nil, nil, err
	}
	return c, v, nil
}

// shake performs a handshake and returns the connection. The deadline of ctx remains set on it. If
// remote is empty, any member is accepted.
func (b *bulk) shake(ctx context.Context, raw net.Conn, scope network.ConnManagementScope, remote peer.ID, names []string, side func(net.Conn, *tls.Config) *tls.Conn) (*bulkConn, error) {
	pace(raw)
	config, keys := b.identity.ConfigForPeer(remote)
	config.NextProtos = names
	secure := side(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	var key crypto.PubKey
	select {
	case key = <-keys:
	default:
	}
	if key == nil {
		return nil, fmt.Errorf("%w: peer without a key", errBulk)
	}
	p, err := peer.IDFromPublicKey(key)
	if err != nil {
		return nil, err
	}
	id, ok := Identity(p)
	if !ok || p == b.node.peerID || !b.node.Allows(p) {
		return nil, ErrNotMember
	}
	if err := scope.SetPeer(p); err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := raw.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	name := secure.ConnectionState().NegotiatedProtocol
	return &bulkConn{Conn: secure, raw: raw, scope: scope, of: b, id: id, peer: p, name: name}, nil
}

// add adds a connection to the node's connections.
func (b *bulk) add(c *bulkConn) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.hasRoom(c.peer, c.dialled) {
		return errEnoughBulk
	}
	b.conns[c] = struct{}{}
	return nil
}

func (b *bulk) remove(c *bulkConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, c)
}

// open returns a connection for one exchange, or nil if none is possible now.
func (b *bulk) open(ctx context.Context, p peer.ID, name string) *bulkConn {
	if c := b.take(p, name); c != nil {
		return c
	}
	addr := b.addr(p)
	if addr == nil || b.full(p) {
		return nil
	}
	dialling, cancel := context.WithTimeout(ctx, bulkDialTime)
	defer cancel()
	c, err := b.dial(dialling, p, name, addr)
	if err == nil {
		return c
	}
	b.node.logger.Debug("p2p: no bulk connection", "member", p, "addr", addr, "err", err)
	if ctx.Err() == nil && !errors.Is(err, errEnoughBulk) {
		b.mu.Lock()
		defer b.mu.Unlock()
		maps.DeleteFunc(b.failed, func(_ peer.ID, at time.Time) bool { return time.Since(at) > bulkRetry })
		b.failed[p] = time.Now()
	}
	return nil
}

// full reports whether no more connections to p can be dialled.
func (b *bulk) full(p peer.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.hasRoom(p, true)
}

// hasRoom reports whether the limits permit one more connection. The caller must hold b.mu.
func (b *bulk) hasRoom(p peer.ID, dialled bool) bool {
	ofPeer := 0
	for c := range b.conns {
		if c.peer == p && c.dialled == dialled {
			ofPeer++
		}
	}
	return !b.closed && ofPeer < bulkPerPeer && len(b.conns) < bulkTotal
}

// take returns an unused connection, or nil.
func (b *bulk) take(p peer.ID, name string) *bulkConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if c.peer == p && c.name == name && c.unused != nil && c.unused.Stop() {
			c.unused = nil
			return c
		}
	}
	return nil
}

// addr returns the address at which to dial a bulk connection to a peer. It uses only the IP address
// of an existing ordinary connection.
func (b *bulk) addr(p peer.ID) ma.Multiaddr {
	b.mu.Lock()
	failed := b.failed[p]
	b.mu.Unlock()
	if time.Since(failed) < bulkRetry {
		return nil
	}
	n := b.node
	n.mu.Lock()
	var known []ma.Multiaddr
	if m := n.members[p]; m != nil {
		known = slices.Concat(m.addrs, m.learned)
	}
	n.mu.Unlock()
	for _, c := range n.host.Network().ConnsToPeer(p) {
		remote := c.RemoteMultiaddr()
		if isTCP(remote) && c.Stat().Direction == network.DirOutbound {
			return remote
		}
		for _, addr := range known {
			if !isCircuit(remote) && isTCP(addr) && len(remote) > 0 && addr[0].Equal(&remote[0]) {
				return addr
			}
		}
	}
	return nil
}
