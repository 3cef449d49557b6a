package train

import (
	"fmt"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/learn/distro"
)

// history contains the data that a trainer needs to open its newest step, and to roll it back: the
// momentum before it, and the hash trees of the newest two results. That is 4 bytes for each parameter
// and, with 8 coefficients a chunk, 500 bytes for each chunk.
//
// It has its own lock, because a trainer may have to open a step while it already computes the next
// gradient.
type history struct {
	mu     sync.Mutex
	shapes audit.Shapes
	values momenta // of the optimizer

	steps  []committed // the newest result, preceded by the result from which it continues
	closed bool        // the memory of the values was freed
	stale  bool        // the values from before belong to a step that was rolled back: the newest can no longer be opened
}

// committed is a result with a commitment.
type committed struct {
	step     uint32
	previous uint32
	tree     *merkle.Tree
	taken    []codec.TensorResult
}

// maxCommitted is the number of results that an opening needs.
const maxCommitted = 2

// newHistory returns the history of values, and makes them keep their state from before a step.
func newHistory(layouts []distro.Layout, topK int, values momenta) (*history, error) {
	return &history{values: values, shapes: shapesOf(layouts, topK)}, values.keepBefore()
}

// lock takes the lock while the momentum changes. A nil history (no audits) needs no lock.
func (h *history) lock() (done func()) {
	if h == nil {
		return func() {}
	}
	h.mu.Lock()
	return h.mu.Unlock
}

// checkHeader refuses headers without a root of the momentum if results are audited, and headers
// with one if they are not.
func (h *history) checkHeader(header codec.Header) error {
	if committed := header.Momentum != [32]byte{}; committed != (h != nil) {
		return fmt.Errorf("%w: its header has a root of the momentum: %v; the run audits results: %v", ErrResult, committed, h != nil)
	}
	return nil
}

// seal commits to the momentum after a step changed it, in the header of the taken coefficients.
// encode returns the bytes of the result. A nil history (no audits) commits to nothing. The caller
// must hold the lock.
func (h *history) seal(header codec.Header, taken []codec.TensorResult, encode func(codec.Header) ([]byte, error)) ([]byte, error) {
	if h == nil {
		return encode(header)
	}
	leaves, err := h.values.leaves(taken)
	if err != nil {
		return nil, fmt.Errorf("commit to the momentum: %w", err)
	}
	c := committed{step: header.Step, previous: h.newest(), tree: merkle.NewTree(leaves), taken: taken}
	header.Momentum, header.Previous = c.tree.Root(), c.previous
	payload, err := encode(header)
	if err != nil {
		return nil, err
	}
	if h.steps = append(h.steps, c); len(h.steps) > maxCommitted {
		h.steps = slices.Clone(h.steps[1:]) // earlier results are no longer needed
	}
	h.stale = false
	return payload, nil
}

// restore restores the momentum from before the newest step, which failed or is rolled back. The
// caller must hold the lock.
func (h *history) restore() {
	h.values.swap()
	h.stale = true
}

// rollback restores the momentum from before a step, which must be the newest. It returns false if
// the history of the step was forgotten. The caller must hold the lock.
func (h *history) rollback(step uint32) (took bool, err error) {
	switch newest := h.newest(); {
	case step > newest:
		return false, nil
	case step < newest || h.stale:
		return false, fmt.Errorf("roll back step %d: %w: the momentum continues from step %d", step, errStep, newest)
	}
	h.restore()
	h.steps = h.steps[:len(h.steps)-1]
	return true, nil
}

// newest returns the step from which the momentum continues; 0: none.
func (h *history) newest() uint32 {
	if n := len(h.steps); n > 0 {
		return h.steps[n-1].step
	}
	return 0
}

// forget is called with the lock when the momentum is reset.
func (h *history) forget() { h.steps, h.stale = nil, false }

// close refuses openings from now on. It waits for an opening in progress. A nil history needs no close.
func (h *history) close() {
	defer h.lock()()
	if h != nil {
		h.closed = true
	}
}

// show opens chunks of the newest step. After close it returns ErrClosed. A nil history (no audits) has none.
func (h *history) show(step uint32, trainer [32]byte, chunks []uint32) (o audit.Opening, err error) {
	if h == nil {
		return o, fmt.Errorf("open step %d: %w: Options.Audited is not set", step, errUnsupported)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return o, fmt.Errorf("open step %d: %w", step, ErrClosed)
	}
	n := len(h.steps)
	if n == 0 || h.steps[n-1].step != step || h.stale {
		return o, fmt.Errorf("open step %d: %w: not the newest trained step", step, errStep)
	}
	now := h.steps[n-1]
	o = audit.Opening{Step: step, Trainer: trainer, Previous: now.previous}
	for _, chunk := range chunks {
		tensor, within, ok := h.shapes.Find(chunk)
		if !ok {
			return audit.Opening{}, fmt.Errorf("open step %d: %w: chunk %d of %d", step, ErrResult, chunk, h.shapes.Chunks())
		}
		opened := audit.Opened{Chunk: chunk}
		if opened.After, err = h.state(now, chunk, tensor, within, false); err == nil && o.Previous != 0 {
			opened.Before, err = h.state(h.steps[n-2], chunk, tensor, within, true)
		}
		if err != nil {
			return audit.Opening{}, fmt.Errorf("open step %d: chunk %d: %w", step, chunk, err)
		}
		o.Chunks = append(o.Chunks, opened)
	}
	return o, nil
}

// state returns the state of a chunk after the step c, which is the newest step or, if before is
// true, the previous one.
func (h *history) state(c committed, chunk uint32, tensor, within int, before bool) (audit.State, error) {
	values, err := h.values.chunk(tensor, within, before)
	return audit.State{
		Momentum: values,
		Taken:    distro.TakenOf(c.taken[tensor], within, h.shapes[tensor].Chunks),
		Path:     c.tree.Prove(int(chunk)),
	}, err
}

// shapesOf returns how tensors are cut into chunks, for package audit.
func shapesOf(layouts []distro.Layout, topK int) (shapes audit.Shapes) {
	for _, l := range layouts {
		shapes = append(shapes, l.Shape(topK))
	}
	return shapes
}
