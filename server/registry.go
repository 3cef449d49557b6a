package server

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/identity"
)

// registry knows a run's connections: which keys have a live one, the peer-to-peer addresses
// that they gave, and who only watches. Connections and the host use it at the same time.
type registry struct {
	mu        sync.Mutex
	live      map[identity.ID]*connection
	addrs     map[identity.ID][]string // also of participants whose connection is gone
	watching  map[*connection]bool
	strangers int // live connections of keys that are not known, as the host counted last

	// changed has a value when something changed since the host looked.
	changed chan struct{}
}

func newRegistry() *registry {
	return &registry{
		live:     make(map[identity.ID]*connection),
		addrs:    make(map[identity.ID][]string),
		watching: make(map[*connection]bool),
		changed:  make(chan struct{}, 1),
	}
}

// claim makes c the live connection of its key. If there is one already it is returned, and
// nothing changed. A stranger is counted until the host counts anew.
func (r *registry) claim(c *connection, addrs []string, stranger bool) *connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.live[c.id]; other != nil {
		return other
	}
	r.live[c.id] = c
	r.addrs[c.id] = addrs
	if stranger {
		r.strangers++
	}
	signal(r.changed)
	return nil
}

// watch shows c what is published, until release.
func (r *registry) watch(c *connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watching[c] = true
}

// countStrangers counts the live connections of keys that are not known.
func (r *registry) countStrangers(known map[identity.ID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strangers = 0
	for id := range r.live {
		if !known[id] {
			r.strangers++
		}
	}
}

// counts returns how many connections there are: live ones, those of strangers among them,
// and those that watch.
func (r *registry) counts() (live, strangers, watching int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live), r.strangers, len(r.watching)
}

// release ends what claim or watch began.
func (r *registry) release(c *connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watching, c)
	if r.live[c.id] == c {
		delete(r.live, c.id)
		signal(r.changed)
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

// isLive reports whether the key has a live connection.
func (r *registry) isLive(id identity.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[id] != nil
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

// peers returns the addresses of the participants in ascending order of their ids, and
// forgets those of everybody else who is not connected.
func (r *registry) peers(participants map[identity.ID]bool) []backend.Peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.addrs, func(id identity.ID, _ []string) bool {
		return r.live[id] == nil && !participants[id]
	})
	var peers []backend.Peer
	for id, addrs := range r.addrs {
		if participants[id] {
			peers = append(peers, backend.Peer{ID: id, Addrs: addrs})
		}
	}
	slices.SortFunc(peers, func(a, b backend.Peer) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return peers
}

// signal puts a value into a channel of capacity one, unless one is there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
