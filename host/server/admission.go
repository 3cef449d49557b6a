package server

import (
	"sync"

	"github.com/psyche-go/psyche/base/identity"
)

// observersPerKey limits the observer connections of one key.
const observersPerKey = 8

// keySlots counts the slots that each key holds, up to a limit per key.
type keySlots struct {
	mu    sync.Mutex
	taken map[identity.ID]int
}

func (s *keySlots) acquire(id identity.ID, most int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[id] >= most {
		return false
	}
	if s.taken == nil {
		s.taken = make(map[identity.ID]int)
	}
	s.taken[id]++
	return true
}

func (s *keySlots) release(id identity.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[id]--; s.taken[id] == 0 {
		delete(s.taken, id)
	}
}
