package p2p

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/psyche-go/psyche/base/identity"
)

// bulkConn is one bulk connection, used by one exchange at a time.
type bulkConn struct {
	*tls.Conn
	raw     net.Conn
	scope   network.ConnManagementScope
	of      *bulk
	id      identity.ID
	peer    peer.ID
	name    string // protocol
	dialled bool   // dialled by this node
	peeked  []byte // first byte of a request

	ended  sync.Once
	unused *time.Timer // closes the connection; nil during an exchange; guarded by bulk.mu
}

// dial makes a connection to a member.
func (b *bulk) dial(ctx context.Context, p peer.ID, name string, addr ma.Multiaddr) (_ *bulkConn, err error) {
	scope, err := b.node.host.Network().ResourceManager().OpenConnection(network.DirOutbound, true, addr)
	if err != nil {
		return nil, err
	}
	var raw net.Conn
	defer func() {
		if err == nil {
			return
		}
		if raw != nil {
			_ = raw.Close()
		}
		scope.Done()
	}()
	var dialer manet.Dialer
	if raw, err = dialer.DialContext(ctx, addr); err != nil {
		raw = nil
		return nil, err
	}
	c, err := b.shake(ctx, raw, scope, p, []string{name}, tls.Client)
	if err != nil {
		return nil, err
	}
	if c.name != name {
		return nil, fmt.Errorf("%w: protocol %q", errBulk, c.name)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var ready [1]byte
	if _, err := io.ReadFull(c.Conn, ready[:]); err != nil {
		return nil, err
	}
	if ready[0] != bulkReady {
		return nil, fmt.Errorf("%w: byte %d", errBulk, ready[0])
	}
	c.dialled = true
	if err := b.add(c); err != nil {
		return nil, err
	}
	return c, nil
}

// close closes the connection at once, because TLS's close notification could wait for the peer.
func (c *bulkConn) close() {
	c.ended.Do(func() {
		c.of.remove(c)
		_ = c.raw.Close()
		c.scope.Done()
	})
}

// keep makes the connection available for the next exchange.
func (c *bulkConn) keep() {
	if err := c.SetDeadline(time.Time{}); err != nil {
		c.close()
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if _, open := c.of.conns[c]; open {
		c.unused = time.AfterFunc(bulkIdle, c.close)
	}
}

// await waits for a request and reports whether one has started.
func (c *bulkConn) await(idle time.Duration) bool {
	if err := c.SetDeadline(time.Now().Add(idle)); err != nil {
		return false
	}
	first := make([]byte, 1)
	n, _ := c.Read(first)
	c.peeked = first[:n]
	return n == 1
}

func (c *bulkConn) Read(p []byte) (int, error) {
	if len(c.peeked) > 0 && len(p) > 0 {
		n := copy(p, c.peeked)
		c.peeked = c.peeked[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.of.node.bytes.LogRecvMessage(int64(n))
	return n, err
}

func (c *bulkConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.of.node.bytes.LogSentMessage(int64(n))
	return n, err
}

// bulkStream is one exchange on a bulk connection.
type bulkStream struct {
	Conn *bulkConn
	used *sync.Once // executed at the end of the exchange
}

func (s bulkStream) Write(p []byte) (int, error)        { return s.Conn.Write(p) }
func (s bulkStream) SetDeadline(t time.Time) error      { return s.Conn.SetDeadline(t) }
func (s bulkStream) SetWriteDeadline(t time.Time) error { return s.Conn.SetWriteDeadline(t) }

// Read adds ErrHungUp to the error if the other side closed a connection that this node dialled.
func (s bulkStream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if s.Conn.dialled && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)) {
		err = fmt.Errorf("%w: %w", ErrHungUp, err)
	}
	return n, err
}

// CloseWrite does nothing, because requests are self-delimiting.
func (s bulkStream) CloseWrite() error { return nil }

// Close makes the connection available for the next exchange.
func (s bulkStream) Close() error {
	s.used.Do(s.Conn.keep)
	return nil
}

// Reset closes the connection.
func (s bulkStream) Reset() error {
	s.used.Do(s.Conn.close)
	return nil
}

// HandleBulk serves a protocol as HandleStream does, and also over bulk connections, which carry one
// exchange after another. The handler must read exactly one request and write exactly one response.
// Both must be self-delimiting.
func (n *Node) HandleBulk(name string, limits StreamLimits, h StreamHandler) {
	n.bulk.serve(name, n.handleStream(name, limits, limits.begin(h)))
}

// OpenBulk is like OpenStream, for a large exchange of a protocol that the other side serves with
// HandleBulk. If possible, it uses a bulk connection: without a multiplexer, transfers cost both
// sides less. On such a connection the other side can refuse only by closing it (ErrHungUp). The
// caller must call Close when the exchange is complete, and Reset otherwise. It must not use the
// stream afterwards.
func (n *Node) OpenBulk(ctx context.Context, to identity.ID, name string) (Stream, error) {
	p, err := PeerID(to)
	if err != nil || !n.Allows(p) || p == n.peerID || !n.isDirect(p) {
		return n.OpenStream(ctx, to, name)
	}
	c := n.bulk.open(ctx, p, name)
	if c == nil {
		return n.OpenStream(ctx, to, name)
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		c.close()
		if errors.Is(err, net.ErrClosed) {
			return n.OpenStream(ctx, to, name)
		}
		return nil, fmt.Errorf("open %s connection to %s: %w", name, to.Short(), err)
	}
	return bulkStream{Conn: c, used: new(sync.Once)}, nil
}
