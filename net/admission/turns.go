package admission

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// Turns limits how many connections use a resource at the same time. A free turn goes to the next
// site, to the next network of that site, and to the longest waiting connection of that network.
// Therefore a site with many connections hardly delays other sites.
type Turns struct {
	mu      sync.Mutex
	free    int
	waiting ring
}

// NewTurns returns Turns for n concurrent connections, at least one.
func NewTurns(n int) *Turns { return &Turns{free: max(1, n)} }

// Wait waits for a turn of the connection. Done must end the turn. All connections without an
// address wait in one queue. If ctx ends, Wait returns the cause of ctx.
func (t *Turns) Wait(ctx context.Context, remote net.Addr) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	path := []netip.Prefix{site(remote), Network(remote)}
	t.waiting.push(path, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.waiting.remove(path, turn) {
		t.pass() // the turn arrived when ctx ended; pass it on
	}
	return context.Cause(ctx)
}

// Done ends a turn.
func (t *Turns) Done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass()
}

// Crowded reports whether a connection is waiting for a turn.
func (t *Turns) Crowded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.waiting.isEmpty()
}

// pass gives a turn to the next connection. The caller must hold mu, and must have the turn.
func (t *Turns) pass() {
	if turn := t.waiting.pop(); turn != nil {
		close(turn)
	} else {
		t.free++
	}
}

// ring is a queue of waiting turns by network, or the queue of one network.
type ring struct {
	order []netip.Prefix // keys of the nonempty rings, the next one first
	inner map[netip.Prefix]*ring
	turns []chan struct{}
}

func (r *ring) isEmpty() bool { return len(r.order) == 0 && len(r.turns) == 0 }

func (r *ring) push(path []netip.Prefix, turn chan struct{}) {
	if len(path) == 0 {
		r.turns = append(r.turns, turn)
		return
	}
	inner := r.inner[path[0]]
	if inner == nil {
		if r.inner == nil {
			r.inner = make(map[netip.Prefix]*ring)
		}
		inner = new(ring)
		r.inner[path[0]] = inner
		r.order = append(r.order, path[0])
	}
	inner.push(path[1:], turn)
}

// pop removes the next turn and returns it, or nil.
func (r *ring) pop() (turn chan struct{}) {
	switch {
	case len(r.turns) > 0:
		turn = r.turns[0]
		r.turns = r.turns[1:]
	case len(r.order) > 0:
		next := r.order[0]
		r.order = r.order[1:]
		turn = r.inner[next].pop()
		if r.inner[next].isEmpty() {
			delete(r.inner, next)
		} else {
			r.order = append(r.order, next)
		}
	}
	return turn
}

// remove removes a turn from the queue, and reports whether it was still waiting.
func (r *ring) remove(path []netip.Prefix, turn chan struct{}) bool {
	if len(path) == 0 {
		i := slices.Index(r.turns, turn)
		if i >= 0 {
			r.turns = slices.Delete(r.turns, i, i+1)
		}
		return i >= 0
	}
	inner := r.inner[path[0]]
	if inner == nil || !inner.remove(path[1:], turn) {
		return false
	}
	if inner.isEmpty() {
		delete(r.inner, path[0])
		r.order = slices.DeleteFunc(r.order, func(p netip.Prefix) bool { return p == path[0] })
	}
	return true
}
