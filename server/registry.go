package server

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/identity"
)

// registry knows which keys have a live connection, and the peer-to-peer addresses that
// they gave. Connections and the host use it at the same time.
type registry struct {
	mu    sync.Mutex
	live  map[identity.ID]*connection
	addrs map[identity.ID][]string // also of participants whose connection is gone

	// changed has a value when something changed since the host looked.
	changed chan struct{}
}

func newRegistry() *registry {
	return &registry{
		live:    make(map[identity.ID]*connection),
		addrs:   make(map[identity.ID][]string),
		changed: make(chan struct{}, 1),
	}
}

// claim makes c the live connection of its key. If there is one already it is returned, and
// nothing changed.
func (r *registry) claim(c *connection, addrs []string) *connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.live[c.id]; other != nil {
		return other
	}
	r.live[c.id] = c
	r.addrs[c.id] = addrs
	signal(r.changed)
	return nil
}

// release ends what claim began.
func (r *registry) release(c *connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// wakeAll makes every live connection look for what was published.
func (r *registry) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.live {
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
