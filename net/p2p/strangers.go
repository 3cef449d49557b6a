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

// firstBytes is what libp2p reads of a TCP connection to tell whose it is, for which it waits half
// a minute with 64 connections at a time.
const (
	firstBytes = 3
	firstTime  = 5 * time.Second // for them to arrive
)

// strangers are the TCP connections that have not shown a key yet. They are let in when they have said
// something, and counted until they have shown a key: those that are silent or slow have few places, of
// which they lose the oldest, and take none of libp2p's own.
type strangers struct {
	limiter *admission.Limiter

	mu     sync.Mutex
	byAddr map[string]*strangeConn // by remote address, until they have shown a key
}

func newStrangers() *strangers {
	return &strangers{limiter: admission.NewLimiter(), byAddr: make(map[string]*strangeConn)}
}

// tcpConn is what libp2p wants of a connection that it accepts.
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

// strangeConn is a connection that has not shown a key yet, and what became of it.
type strangeConn struct {
	tcpConn
	strangers *strangers
	place     *admission.Place
	first     []byte // read already
}

// Read implements net.Conn.
func (c *strangeConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.tcpConn.Read(b)
}

// Close implements net.Conn.
func (c *strangeConn) Close() error {
	c.strangers.leave(c)
	return c.tcpConn.Close()
}

func (s *strangers) leave(c *strangeConn) {
	s.mu.Lock()
	if key := c.RemoteAddr().String(); s.byAddr[key] == c {
		delete(s.byAddr, key)
	}
	s.mu.Unlock()
	s.limiter.Leave(c.place)
}

// shown gives back the place of a connection that has shown its key.
func (s *strangers) shown(remote net.Addr) {
	s.mu.Lock()
	c := s.byAddr[remote.String()]
	s.mu.Unlock()
	if c != nil {
		s.leave(c)
	}
}

// shownAt is shown for an address as libp2p has it.
func (s *strangers) shownAt(remote ma.Multiaddr) {
	if addr, err := manet.ToNetAddr(remote); err == nil {
		s.shown(addr)
	}
}

// admit takes a place for a connection, or hangs up.
func (s *strangers) admit(raw manet.Conn) *strangeConn {
	conn, ok := raw.(tcpConn)
	if !ok {
		_ = raw.Close()
		return nil
	}
	c := &strangeConn{tcpConn: conn, strangers: s}
	if c.place = s.limiter.Enter(conn.RemoteAddr(), func() { _ = conn.Close() }); c.place == nil {
		_ = conn.Close()
		return nil
	}
	s.mu.Lock()
	s.byAddr[conn.RemoteAddr().String()] = c
	s.mu.Unlock()
	return c
}

// hear waits for the first bytes.
func (c *strangeConn) hear() error {
	if err := c.SetReadDeadline(time.Now().Add(firstTime)); err != nil {
		return err
	}
	first := make([]byte, firstBytes)
	if _, err := io.ReadFull(c.tcpConn, first); err != nil {
		return err
	}
	c.place.Spoke()
	c.first = first
	return c.SetReadDeadline(time.Time{})
}

// boundedListener is a port at which strangers have few connections.
type boundedListener struct {
	manet.Listener
	node  *Node
	begin sync.Once
	ready chan manet.Conn // has said something
	ended chan struct{}   // closed when the port is
	err   error           // why; valid after ended
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

// acceptAll lets connections in until the port is closed.
func (l *boundedListener) acceptAll() {
	defer close(l.ended)
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			l.err = err
			return
		}
		c := l.node.strangers.admit(raw)
		if c != nil && !l.node.run(func() { l.pass(c) }) {
			_ = c.Close()
		}
	}
}

// pass hands a connection over when it has said something.
func (l *boundedListener) pass(c *strangeConn) {
	if err := c.hear(); err != nil {
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
