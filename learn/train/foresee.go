package train

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/record/required"
)

// foreseen are the results of a step that moved the weights before it was decided that they count.
type foreseen struct {
	step       uint32
	payloads   [][]byte
	ownCounted bool
	confirmed  bool
	back       func()       // puts the weights back
	settle     func() error // does the rest of Apply
}

// foresight is what a replica has foreseen. Whoever locks the replica next decides it: what was not confirmed is
// taken back.
type foresight struct {
	mu sync.Mutex
	of *foreseen // nil: nothing
}

// decide ends a foresight, unless keep says that it goes on. The caller holds the replica's lock.
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

// fulfilled ends a foresight that a training has gone on from.
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

// Foresee moves the weights by the results that a step will most likely have, as Apply does, so that Train of a
// later step can begin. What was foreseen is part of the model once Confirm or Apply says the same; whatever else
// follows, other than Train, takes it back to the bit. It returns false where that cannot be done: under an
// optimizer whose training moves the weights itself, and for a model of more than a GiB in f32, of which there is
// no room for a copy.
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

// Confirm says that what was foreseen of a step came true, and returns false if it was taken back before. It waits
// for nothing, and may be called while Train runs.
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

// isForeseen reports whether the weights were moved by exactly these results already, and confirms them.
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
