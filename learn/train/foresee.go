package train

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/record/required"
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

// Foresee moves the weights by the results that a step will most likely have, as Apply does, so
// that Train of a later step can start. The speculation becomes part of the model when Confirm, or
// Apply with the same results, is called. Any other call except Train undoes it, bit for bit.
// Foresee returns false if it is not possible: for an optimizer whose training moves the weights
// itself, and for a model of more than a GiB in f32, for which there is no memory for a copy.
func (m *member) Foresee(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) (done bool, err error) {
	if !m.by.foresees() || 4*m.Elements() > required.MaxCopied {
		return false, nil
	}
	results, err := m.by.decodeAll(step, payloads)
	if err != nil {
		return false, fmt.Errorf("speculate on step %d: %w", step, err)
	}
	if err := m.lock(ctx); err != nil {
		return false, fmt.Errorf("speculate on step %d: %w", step, err)
	}
	defer m.unlock()
	err = m.checkNext(step)
	if err != nil {
		return false, fmt.Errorf("speculate on step %d: %w", step, err)
	}
	back := m.keepWeights()
	if err := m.by.move(ctx, step, results); err != nil {
		back()
		return false, fmt.Errorf("speculate on step %d: %w", step, err)
	}
	m.foresight.mu.Lock()
	defer m.foresight.mu.Unlock()
	m.foresight.of = &foreseen{
		step: step, payloads: payloads, ownCounted: ownCounted, back: back,
		settle: func() error { return m.settled(step, ownCounted) },
	}
	return true, nil
}

// Confirm confirms the speculation about a step, and returns false if it was already undone. It
// does not block, and may be called while Train runs.
func (m *member) Confirm(step uint32) bool {
	m.foresight.mu.Lock()
	defer m.foresight.mu.Unlock()
	of := m.foresight.of
	if of == nil || of.step != step {
		return false
	}
	of.confirmed = true
	return true
}

// isForeseen reports whether the weights were already moved by exactly these results, and confirms
// them.
func (m *member) isForeseen(step uint32, payloads [][]byte, ownCounted bool) bool {
	m.foresight.mu.Lock()
	defer m.foresight.mu.Unlock()
	of := m.foresight.of
	if of == nil || of.step != step || of.ownCounted != ownCounted || !slices.EqualFunc(of.payloads, payloads, bytes.Equal) {
		return false
	}
	of.confirmed = true
	return true
}
