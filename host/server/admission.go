package server

import (
	"sync"

	"github.com/psyche-go/psyche/base/identity"
)

// observersPerKey limits the observer connections of one key.
const observersPerKey = 8

// places counts the slots that each key holds, up to a limit per key.
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
