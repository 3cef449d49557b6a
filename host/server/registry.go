package server

import (
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend"
)

// registry holds a run's live connections by key, their peer-to-peer addresses, and the spectators.
// It is safe for concurrent use.
type registry struct {
	mu        sync.Mutex
	live      map[identity.ID]*connection
	addrs     map[identity.ID][]string // also of disconnected participants
	watching  map[*connection]bool
	unknown   *admission.Limiter // the server's limit for live connections of unknown keys
	onlookers *admission.Limiter // the server's limit for observers without a role

	closed error // reason why no connection is admitted any more; nil: open

	// changed has a value if something changed since the host last checked.
	changed chan struct{}
}

func newRegistry(unknown, onlookers *admission.Limiter) *registry {
	return &registry{
		unknown:   unknown,
		onlookers: onlookers,
		live:      make(map[identity.ID]*connection),
		addrs:     make(map[identity.ID][]string),
		watching:  make(map[*connection]bool),
		changed:   make(chan struct{}, 1),
	}
}

// claim makes c the live connection of its key. If the key already has a live connection, claim
// returns it and changes nothing. The connection of an unknown client needs a free slot.
func (r *registry) claim(c *connection, addrs []string, unknown bool) (*connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return nil, r.closed
	}
	if other := r.live[c.id]; other != nil {
		return other, nil
	}
	if unknown {
		if err := r.seat(c, r.unknown); err != nil {
			return nil, err
		}
	}
	r.live[c.id] = c
	r.addrs[c.id] = addrs
	signal(r.changed)
	return nil, nil
}

// watch registers c as a spectator until release. Without a role, c needs a free observer slot, so
// that observers do not use up the slots of participants.
func (r *registry) watch(c *connection, hasRole bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return r.closed
	}
	if !hasRole {
		if err := r.seat(c, r.onlookers); err != nil {
			return err
		}
	}
	r.watching[c] = true
	return nil
}

// seat gives c a slot under a limiter. The caller holds mu.
func (r *registry) seat(c *connection, in *admission.Limiter) error {
	slot := in.Enter(c.conn.RemoteAddr(), c.evict)
	if slot == nil {
		return refuse(frame.RefusedBusy, "the server has too many connections of clients that are not part of a run, try again later")
	}
	c.leave = func() { in.Leave(slot) }
	return nil
}

// unseat releases the slot under a limiter. The caller holds mu.
func (r *registry) unseat(c *connection) {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// seatUnknown gives connections whose keys became unknown a slot for unknown clients, and
// releases the slots of connections whose keys became known.
func (r *registry) seatUnknown(known map[identity.ID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.live {
		switch {
		case known[id]:
			r.unseat(c)
		case c.leave == nil:
			slot := r.unknown.Admit(c.conn.RemoteAddr(), c.evict)
			c.leave = func() { r.unknown.Leave(slot) }
		}
	}
}

// counts returns the number of live connections, the live connections of unknown clients among
// them, and the spectators.
func (r *registry) counts() (live, unknown, watching int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.live {
		if c.leave != nil {
			unknown++
		}
	}
	return len(r.live), unknown, len(r.watching)
}

// release reverts claim or watch.
func (r *registry) release(c *connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watching, c)
	r.unseat(c)
	if r.live[c.id] == c {
		delete(r.live, c.id)
		signal(r.changed)
	}
}

// shut ends all connections and admits no more.
func (r *registry) shut(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = reason
	for _, c := range r.live {
		c.hangUp(reason)
	}
	for c := range r.watching {
		c.hangUp(reason)
	}
}

// setAddrs replaces the addresses of a live connection's key.
func (r *registry) setAddrs(c *connection, addrs []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live[c.id] == c {
		r.addrs[c.id] = addrs
		signal(r.changed)
	}
}

// origin reports whether the key has a live connection, and its origin.
func (r *registry) origin(id identity.ID) (from core.Origin, live bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.live[id]; c != nil {
		return c.origin, true
	}
	return from, false
}

// isBehind reports whether the key's live connection has not had the whole log yet.
func (r *registry) isBehind(id identity.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.live[id]
	return c != nil && !c.caught.Load()
}

// wakeAll makes every connection check for publications.
func (r *registry) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.live {
		signal(c.published)
	}
	for c := range r.watching {
		signal(c.published)
	}
}

// peers returns the addresses of the participants in their order. It forgets the addresses of
// disconnected keys that are not participants.
func (r *registry) peers(participants []identity.ID, names core.Names) (peers []backend.Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := make(map[identity.ID][]string, len(r.addrs))
	for id := range r.live {
		kept[id] = r.addrs[id]
	}
	for _, id := range participants {
		if addrs, known := r.addrs[id]; known {
			peers, kept[id] = append(peers, backend.Peer{ID: id, Addrs: addrs, Name: names[id]}), addrs
		}
	}
	r.addrs = kept
	return peers
}

// signal puts a value into a channel of capacity one, unless it already has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
