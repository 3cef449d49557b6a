package train

import (
	"fmt"
	"sync"
)

// foreseen is a step whose results moved the weights before it was decided that they count.
type foreseen struct {
	step       uint32
	payloads   [][]byte
	ownCounted bool
	confirmed  bool
	back       func()       // restores the weights
	settle     func() error // does the rest of Apply
}

// foresight is the speculation of a replica. The next lock of the replica decides it: an
// unconfirmed speculation is undone.
type foresight struct {
	mu sync.Mutex
	of *foreseen // nil: none
}

// decide ends a speculation, unless keep returns true. The caller must hold the replica's lock.
func (f *foresight) decide(keep func(of *foreseen) bool) error {
	f.mu.Lock()
	of := f.of
	if of == nil || !of.confirmed && keep(of) {
		f.mu.Unlock()
		return nil
	}
	f.of = nil
	f.mu.Unlock()
	if !of.confirmed {
		of.back()
		return nil
	}
	return of.settle()
}

// fulfilled ends a speculation that a training has used.
func (f *foresight) fulfilled() error {
	f.mu.Lock()
	of := f.of
	if of == nil {
		f.mu.Unlock()
		return nil
	}
	if !of.confirmed {
		f.mu.Unlock()
		return fmt.Errorf("%w: the speculative results of step %d were not confirmed", errStep, of.step)
	}
	f.of = nil
	f.mu.Unlock()
	return of.settle()
}
