package p2p

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/psyche-go/psyche/net/admission"
)

// firstBytes is the number of bytes that libp2p reads from a TCP connection to determine its
// protocol. libp2p waits half a minute for them, and does so for only 64 connections at the same
// time.
const (
	firstBytes = 3
	firstTime  = 5 * time.Second // time limit for these bytes
)

// unproven contains the TCP connections that have not proved a key yet. A connection is accepted
// after it has sent something, and counted until it has proved a key. Silent and slow connections
// have a few slots, separate from libp2p's. If all slots are taken, the oldest connection is
// evicted.
type unproven struct {
	limiter *admission.Limiter

	mu     sync.Mutex
	byAddr map[string]*unprovenConn // by remote address, until they have proved a key
}

func newUnproven() *unproven {
	return &unproven{limiter: admission.NewLimiter(), byAddr: make(map[string]*unprovenConn)}
}

// tcpConn is libp2p's interface of a connection that it accepts.
type tcpConn interface {
	manet.Conn
	syscall.Conn
	io.ReaderFrom
	io.WriterTo
	CloseRead() error
	CloseWrite() error
	SetLinger(sec int) error
	SetKeepAlive(keepalive bool) error
	SetKeepAlivePeriod(d time.Duration) error
	SetNoDelay(noDelay bool) error
	MultipathTCP() (bool, error)
}

// unprovenConn is a TCP connection that has not proved a key yet.
type unprovenConn struct {
	tcpConn
	unproven *unproven
	slot     *admission.Slot
	first    []byte // already read
}

// Read implements net.Conn.
func (c *unprovenConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.tcpConn.Read(b)
}

// Close implements net.Conn.
func (c *unprovenConn) Close() error {
	c.unproven.leave(c)
	return c.tcpConn.Close()
}

func (s *unproven) leave(c *unprovenConn) {
	s.mu.Lock()
	if key := c.RemoteAddr().String(); s.byAddr[key] == c {
		delete(s.byAddr, key)
	}
	s.mu.Unlock()
	s.limiter.Leave(c.slot)
}

// shown releases the slot of a connection that has proved its key.
func (s *unproven) shown(remote net.Addr) {
	s.mu.Lock()
	c := s.byAddr[remote.String()]
	s.mu.Unlock()
	if c != nil {
		s.leave(c)
	}
}

// shownAt is like shown, for an address of libp2p's type.
func (s *unproven) shownAt(remote ma.Multiaddr) {
	if addr, err := manet.ToNetAddr(remote); err == nil {
		s.shown(addr)
	}
}

// admit takes a slot for a connection, or closes the connection.
func (s *unproven) admit(raw manet.Conn) *unprovenConn {
	conn, ok := raw.(tcpConn)
	if !ok {
		_ = raw.Close()
		return nil
	}
	c := &unprovenConn{tcpConn: conn, unproven: s}
	if c.slot = s.limiter.Enter(conn.RemoteAddr(), func() { _ = conn.Close() }); c.slot == nil {
		_ = conn.Close()
		return nil
	}
	s.mu.Lock()
	s.byAddr[conn.RemoteAddr().String()] = c
	s.mu.Unlock()
	return c
}

// awaitFirst waits for the first bytes.
func (c *unprovenConn) awaitFirst() error {
	if err := c.SetReadDeadline(time.Now().Add(firstTime)); err != nil {
		return err
	}
	first := make([]byte, firstBytes)
	if _, err := io.ReadFull(c.tcpConn, first); err != nil {
		return err
	}
	c.slot.Spoke()
	c.first = first
	return c.SetReadDeadline(time.Time{})
}

// boundedListener is a listener that limits the connections of unknown clients.
type boundedListener struct {
	manet.Listener
	node  *Node
	begin sync.Once
	ready chan manet.Conn // connections that have sent something
	ended chan struct{}   // closed when the port is closed
	err   error           // reason; valid after ended
}

func newBoundedListener(l manet.Listener, n *Node) *boundedListener {
	return &boundedListener{Listener: l, node: n, ready: make(chan manet.Conn), ended: make(chan struct{})}
}

// Accept implements manet.Listener.
func (l *boundedListener) Accept() (manet.Conn, error) {
	l.begin.Do(func() {
		if !l.node.run(l.acceptAll) {
			l.err = net.ErrClosed
			close(l.ended)
		}
	})
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ended:
		return nil, l.err
	}
}

// acceptAll accepts connections until the port is closed.
func (l *boundedListener) acceptAll() {
	defer close(l.ended)
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			l.err = err
			return
		}
		c := l.node.unproven.admit(raw)
		if c != nil && !l.node.run(func() { l.pass(c) }) {
			_ = c.Close()
		}
	}
}

// pass delivers a connection when it has sent something.
func (l *boundedListener) pass(c *unprovenConn) {
	if err := c.awaitFirst(); err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			l.node.logger.Debug("p2p: silent connection", "from", c.RemoteAddr(), "err", err)
		}
		_ = c.Close()
		return
	}
	select {
	case l.ready <- c:
	case <-l.ended:
		_ = c.Close()
	}
}
