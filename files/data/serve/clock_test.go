package serve_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/clocktest"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/serve"
)

// jumpingListener returns connections of a machine whose wall clock jumps whenever a deadline is
// set. After the jump, a deadline without a monotonic clock reading is an hour too late or too
// early.
type jumpingListener struct {
	net.Listener
	by  time.Duration
	set *atomic.Int64 // deadlines in the future
}

func (l jumpingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return jumpingConn{conn, l}, err
}

type jumpingConn struct {
	net.Conn
	in jumpingListener
}

// jump returns a deadline after the clock was set. Deadlines in 1970 end a connection at once.
func (c jumpingConn) jump(at time.Time) time.Time {
	if at.Year() < 2000 {
		return at
	}
	c.in.set.Add(1)
	return clocktest.Jump(at, c.in.by)
}

func (c jumpingConn) SetDeadline(at time.Time) error      { return c.Conn.SetDeadline(c.jump(at)) }
func (c jumpingConn) SetReadDeadline(at time.Time) error  { return c.Conn.SetReadDeadline(c.jump(at)) }
func (c jumpingConn) SetWriteDeadline(at time.Time) error { return c.Conn.SetWriteDeadline(c.jump(at)) }

// TestClockJumps checks that a data server whose clock is set still answers, and still closes
// connections without a request in time.
func TestClockJumps(t *testing.T) {
	reference := open(t, data.Options{}, local(folder(t)))
	for _, by := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			set := &atomic.Int64{}
			s := state(3, 3, 4)
			server := startOn(t, reference, "127.0.0.1:0", func(l net.Listener) net.Listener { return jumpingListener{l, by, set} }, func(o *serve.Options) {
				o.IdleTimeout, o.HandshakeTimeout = 400*time.Millisecond, 200*time.Millisecond
			})
			server.Update(s, runHash)
			c := connect(t, options(server, 1))
			for range 3 {
				if _, err := c.Batch(t.Context(), owned(t, s, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if set.Load() < 3 {
				t.Errorf("the test tests little: %d deadlines were set", set.Load())
			}
			silent, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = silent.Close() }()
			begun := time.Now()
			_ = silent.SetReadDeadline(begun.Add(20 * time.Second))
			if _, err := silent.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || isTimeout(err) {
				t.Errorf("a client that sends nothing: %v", err)
			} else if took := time.Since(begun); took < 100*time.Millisecond {
				t.Errorf("a client had only %v for its handshake (%v, %v)", took, err, errors.Is(err, io.EOF))
			}
		})
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
