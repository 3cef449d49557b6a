package openai

import (
	"context"
	"net"
	"sync"

	"github.com/psyche-go/psyche/net/admission"
)

// door is a listener that lets in as many connections as its lobby has room for, besides those that
// are being answered. When it is full, the oldest connection of the address that has the most is closed
// for one of an address that has fewer; another one is not let in.
type door struct {
	net.Listener
	lobby *admission.Lobby
}

// visitor is a connection that was let in.
type visitor struct {
	net.Conn
	lobby *admission.Lobby

	mu     sync.Mutex
	guest  *admission.Guest
	closed bool
}

type visitorKey struct{} // of the visitor in the context of its requests

// Accept implements net.Listener.
func (d door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v := &visitor{Conn: conn, lobby: d.lobby}
		if v.guest = d.lobby.Enter(conn.RemoteAddr(), v.evict); v.guest != nil {
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
	v.lobby.Leave(v.guest)
	return v.Conn.Close()
}

// answering gives its place in the lobby back until the returned function is called.
func (v *visitor) answering() (answered func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lobby.Leave(v.guest)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.closed {
			v.guest = v.lobby.Admit(v.RemoteAddr(), v.evict)
		}
	}
}

// whileAnswered is for a request that has a place in the queue: its connection, if it came through a
// door, needs none of the lobby.
func whileAnswered(ctx context.Context) (answered func()) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		return v.answering()
	}
	return func() {}
}
