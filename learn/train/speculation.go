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
	votes      []uint8
	ownCounted bool
	confirmed  bool
	back       func() error // restores the weights
	finalize   func() error // does the rest of Apply
}

// speculated holds the current speculation of a replica, if any. The next lock of the replica decides it: an
// unconfirmed speculation is undone.
type speculated struct {
	mu sync.Mutex
	of *speculation // nil: none
}

// start starts a speculation. The caller must hold the replica's lock.
func (s *speculated) start(of *speculation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of = of
}

// decide ends a speculation, unless keep returns true. The caller must hold the replica's lock.
func (s *speculated) decide(keep func(of *speculation) bool) error {
	s.mu.Lock()
	of := s.of
	if of == nil || !of.confirmed && keep(of) {
		s.mu.Unlock()
		return nil
	}
	s.of = nil
	s.mu.Unlock()
	if !of.confirmed {
		return of.back()
	}
	return of.finalize()
}

// fulfilled ends a speculation that a training has used.
func (s *speculated) fulfilled() error {
	s.mu.Lock()
	of := s.of
	if of == nil {
		s.mu.Unlock()
		return nil
	}
	if !of.confirmed {
		s.mu.Unlock()
		return fmt.Errorf("%w: the speculative results of step %d were not confirmed", errStep, of.step)
	}
	s.of = nil
	s.mu.Unlock()
	return of.finalize()
}

// confirm confirms the speculation about a step, and returns false if there is none.
func (s *speculated) confirm(step uint32) bool {
	return s.confirmIf(func(of *speculation) bool { return of.step == step })
}

// matches reports whether the weights were already moved by exactly these results, and confirms
// them.
func (s *speculated) matches(step uint32, payloads [][]byte, votes []uint8, ownCounted bool) bool {
	return s.confirmIf(func(of *speculation) bool {
		return of.step == step && of.ownCounted == ownCounted && slices.Equal(of.votes, votes) && slices.EqualFunc(of.payloads, payloads, bytes.Equal)
	})
}

func (s *speculated) confirmIf(is func(of *speculation) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil || !is(s.of) {
		return false
	}
	s.of.confirmed = true
	return true
}
