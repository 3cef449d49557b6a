package server

import (
	"sync"

	"github.com/psyche-go/psyche/base/identity"
)

// observersPerKey bounds the connections of one key that watch.
const observersPerKey = 8

// places counts what each key holds of something, up to a bound.
type places struct {
	mu    sync.Mutex
	taken map[identity.ID]int
}

func (p *places) acquire(id identity.ID, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[id] >= most {
		return false
	}
	if p.taken == nil {
		p.taken = make(map[identity.ID]int)
	}
	p.taken[id]++
	return true
}

func (p *places) release(id identity.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[id]--; p.taken[id] == 0 {
		delete(p.taken, id)
	}
}
