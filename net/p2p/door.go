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

// door lets TCP connections in that have said something, and keeps count of them until they have
// shown a key: strangers that are silent or slow have few places, of which they lose the oldest, and
// take none of libp2p's own.
type door struct {
	limiter *admission.Limiter

	mu      sync.Mutex
	strange map[string]*strangeConn // by remote address, until they have shown a key
}

func newDoor() *door {
	return &door{limiter: admission.NewLimiter(), strange: make(map[string]*strangeConn)}
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
	door  *door
	place *admission.Place
	first []byte // read already
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
	c.door.leave(c)
	return c.tcpConn.Close()
}

func (d *door) leave(c *strangeConn) {
	d.mu.Lock()
	if key := c.RemoteAddr().String(); d.strange[key] == c {
		delete(d.strange, key)
	}
	d.mu.Unlock()
	d.limiter.Leave(c.place)
}

// shown gives back the place of a connection that has shown its key.
func (d *door) shown(remote net.Addr) {
	d.mu.Lock()
	c := d.strange[remote.String()]
	d.mu.Unlock()
	if c != nil {
		d.leave(c)
	}
}

// shownAt is shown for an address as libp2p has it.
func (d *door) shownAt(remote ma.Multiaddr) {
	if addr, err := manet.ToNetAddr(remote); err == nil {
		d.shown(addr)
	}
}

// admit takes a place for a connection, or hangs up.
func (d *door) admit(raw manet.Conn) *strangeConn {
	conn, ok := raw.(tcpConn)
	if !ok {
		_ = raw.Close()
		return nil
	}
	c := &strangeConn{tcpConn: conn, door: d}
	if c.place = d.limiter.Enter(conn.RemoteAddr(), func() { _ = conn.Close() }); c.place == nil {
		_ = conn.Close()
		return nil
	}
	d.mu.Lock()
	d.strange[conn.RemoteAddr().String()] = c
	d.mu.Unlock()
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

// doorListener is a port with a door in front of it.
type doorListener struct {
	manet.Listener
	node  *Node
	begin sync.Once
	ready chan manet.Conn // has said something
	ended chan struct{}   // closed when the port is
	err   error           // why; valid after ended
}

func newDoorListener(l manet.Listener, n *Node) *doorListener {
	return &doorListener{Listener: l, node: n, ready: make(chan manet.Conn), ended: make(chan struct{})}
}

// Accept implements manet.Listener.
func (l *doorListener) Accept() (manet.Conn, error) {
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
func (l *doorListener) acceptAll() {
	defer close(l.ended)
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			l.err = err
			return
		}
		c := l.node.door.admit(raw)
		if c != nil && !l.node.run(func() { l.pass(c) }) {
			_ = c.Close()
		}
	}
}

// pass hands a connection over when it has said something.
func (l *doorListener) pass(c *strangeConn) {
	if err := c.hear(); err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			l.node.logger.Debug("p2p: a connection says nothing", "from", c.RemoteAddr(), "err", err)
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
