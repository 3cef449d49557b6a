package train

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
)

// speculation is a step whose results moved the weights before the run decided which results count.
type speculation struct {
	step       uint32
	payloads   [][]byte
	ownCounted bool
	confirmed  bool
	back       func()       // restores the weights
	finalize   func() error // does the rest of Apply
}

// speculated holds the current speculation of a replica, if any. The next lock of the replica decides it: an
// unconfirmed speculation is undone.
type speculated struct {
	mu sync.Mutex
	of *speculation // nil: none
}

// start starts a speculation. The caller must hold the replica's lock.
func (f *speculated) start(of *speculation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of = of
}

// decide ends a speculation, unless keep returns true. The caller must hold the replica's lock.
func (f *speculated) decide(keep func(of *speculation) bool) error {
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
	return of.finalize()
}

// fulfilled ends a speculation that a training has used.
func (f *speculated) fulfilled() error {
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
	return of.finalize()
}

// confirm confirms the speculation about a step, and returns false if there is none.
func (f *speculated) confirm(step uint32) bool {
	return f.confirmIf(func(of *speculation) bool { return of.step == step })
}

// matches reports whether the weights were already moved by exactly these results, and confirms
// them.
func (f *speculated) matches(step uint32, payloads [][]byte, ownCounted bool) bool {
	return f.confirmIf(func(of *speculation) bool {
		return of.step == step && of.ownCounted == ownCounted && slices.EqualFunc(of.payloads, payloads, bytes.Equal)
	})
}

func (f *speculated) confirmIf(is func(of *speculation) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil || !is(f.of) {
		return false
	}
	f.of.confirmed = true
	return true
}
