package server

import (
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend"
)

// registry knows a run's connections: which keys have a live one, the peer-to-peer addresses
// that they gave, and the spectators. Connections and the host use it at the same time.
type registry struct {
	mu        sync.Mutex
	live      map[identity.ID]*connection
	addrs     map[identity.ID][]string // also of participants whose connection is gone
	watching  map[*connection]bool
	strangers *admission.Limiter // of the server: live connections of keys that are not known
	onlookers *admission.Limiter // of the server: keys that watch and have no office

	closed error // why nobody is let in any more

	// changed has a value when something changed since the host looked.
	changed chan struct{}
}

func newRegistry(strangers, onlookers *admission.Limiter) *registry {
	return &registry{
		strangers: strangers,
		onlookers: onlookers,
		live:      make(map[identity.ID]*connection),
		addrs:     make(map[identity.ID][]string),
		watching:  make(map[*connection]bool),
		changed:   make(chan struct{}, 1),
	}
}

// claim makes c the live connection of its key. If there is one already it is returned, and
// nothing changed. A stranger needs a place among the strangers, or it is refused.
func (r *registry) claim(c *connection, addrs []string, stranger bool) (*connection, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return nil, r.closed
	}
	if other := r.live[c.id]; other != nil {
		return other, nil
	}
	if stranger {
		if err := r.seat(c, r.strangers); err != nil {
			return nil, err
		}
	}
	r.live[c.id] = c
	r.addrs[c.id] = addrs
	signal(r.changed)
	return nil, nil
}

// watch shows c what is published, until release. Without an office it needs a place among those
// who watch: they take none from whoever wants to take part.
func (r *registry) watch(c *connection, office bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return r.closed
	}
	if !office {
		if err := r.seat(c, r.onlookers); err != nil {
			return err
		}
	}
	r.watching[c] = true
	return nil
}

// seat gives c a place under a limiter. The caller holds mu.
func (r *registry) seat(c *connection, in *admission.Limiter) error {
	place := in.Enter(c.conn.RemoteAddr(), c.giveWay)
	if place == nil {
		return refuse(frame.RefusedBusy, "the server has too many connections of clients that are not part of a run, try again later")
	}
	c.leave = func() { in.Leave(place) }
	return nil
}

// unseat gives back a place under a limiter. The caller holds mu.
func (r *registry) unseat(c *connection) {
	if c.leave != nil {
		c.leave()
		c.leave = nil
	}
}

// seatStrangers gives live connections of keys that are not known any more a place among
// the strangers, and takes it from those that have become known.
func (r *registry) seatStrangers(known map[identity.ID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, c := range r.live {
		switch {
		case known[id]:
			r.unseat(c)
		case c.leave == nil:
			place := r.strangers.Admit(c.conn.RemoteAddr(), c.giveWay)
			c.leave = func() { r.strangers.Leave(place) }
		}
	}
}

// counts returns how many connections there are: live ones, those of strangers among them,
// and those that watch.
func (r *registry) counts() (live, strangers, watching int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.live {
		if c.leave != nil {
			strangers++
		}
	}
	return len(r.live), strangers, len(r.watching)
}

// release ends what claim or watch began.
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

// shut ends all connections and lets nobody in any more.
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

// origin reports whether the key has a live connection, and from where.
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

// wakeAll makes every connection look for what was published.
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

// peers returns the addresses of the participants in their order, and forgets those of everybody
// else who is not connected.
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

// signal puts a value into a channel of capacity one, unless one is there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
