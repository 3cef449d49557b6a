package train

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// Foresee moves the weights by the results that a step will most likely have, as Apply does, so
// that Train of a later step can start. The speculation becomes part of the model when Confirm, or
// Apply with the same results, is called. Any other call except Train undoes it, bit for bit.
// Foresee returns false if it is not possible: for an optimizer whose training moves the weights
// itself, and for a model of more than a GiB in f32, for which there is no memory for a copy.
func (m *member) Foresee(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) (done bool, err error) {
	if !m.by.foresees() || m.large() {
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
	back := m.keep()
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
