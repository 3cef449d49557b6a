package openai

import (
	"context"
	"net"
	"sync"

	"github.com/psyche-go/psyche/net/admission"
)

// limitedListener limits the number of accepted connections on which no answer is running. At the
// limit, the address with the most such connections loses its oldest one to an address with fewer, or
// the new connection is closed.
type limitedListener struct {
	net.Listener
	limiter *admission.Limiter
}

// visitor is an accepted connection.
type visitor struct {
	net.Conn
	limiter *admission.Limiter

	mu     sync.Mutex
	slot   *admission.Slot
	closed bool
}

type visitorKey struct{} // key of the visitor in the context of its requests

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v := &visitor{Conn: conn, limiter: l.limiter}
		if v.slot = l.limiter.Enter(conn.RemoteAddr(), v.evict); v.slot != nil {
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
	v.limiter.Leave(v.slot)
	return v.Conn.Close()
}

// answering releases the connection's slot until the returned function is called.
func (v *visitor) answering() (answered func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limiter.Leave(v.slot)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.closed {
			v.slot = v.limiter.Admit(v.RemoteAddr(), v.evict)
		}
	}
}

// whileAnswered releases the connection slot of a request that has a slot in the queue. It has no
// effect if the connection did not come through a limitedListener.
func whileAnswered(ctx context.Context) (answered func()) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		return v.answering()
	}
	return func() {}
}
