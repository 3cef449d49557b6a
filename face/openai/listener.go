package openai

import (
	"context"
	"net"
	"sync"

	"github.com/psyche-go/psyche/net/admission"
)

// limitedListener is a listener that lets in as many connections as its limiter has places for, besides those that
// are being answered. When it is full, the oldest connection of the address that has the most is closed
// for one of an address that has fewer; another one is not let in.
type limitedListener struct {
	net.Listener
	limiter *admission.Limiter
}

// visitor is a connection that was let in.
type visitor struct {
	net.Conn
	limiter *admission.Limiter

	mu     sync.Mutex
	place  *admission.Place
	closed bool
}

type visitorKey struct{} // of the visitor in the context of its requests

// Accept implements net.Listener.
func (d limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v := &visitor{Conn: conn, limiter: d.limiter}
		if v.place = d.limiter.Enter(conn.RemoteAddr(), v.evict); v.place != nil {
			return v, nil
		}
		_ = conn.Close()
	}
}

func (v *visitor) evict() { _ = v.Conn.Close() }

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	v.limiter.Leave(v.place)
	return v.Conn.Close()
}

// answering gives its place back until the returned function is called.
func (v *visitor) answering() (answered func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limiter.Leave(v.place)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.closed {
			v.place = v.limiter.Admit(v.RemoteAddr(), v.evict)
		}
	}
}

// whileAnswered is for a request that has a place in the queue: its connection, if it came through a
// limitedListener, needs no place there.
func whileAnswered(ctx context.Context) (answered func()) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		return v.answering()
	}
	return func() {}
}
