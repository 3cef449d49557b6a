package train

import (
	"fmt"
	"sync"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/distro"
	"github.com/psyche-go/psyche/distro/codec"
	"github.com/psyche-go/psyche/merkle"
)

// history is what a trainer keeps to open its newest step: the momentum before it, and the
// trees of the newest results. That is 4 bytes for each parameter and, with 8 coefficients a
// chunk, 700 for each chunk. From the first result that is given back on it is 4 more for each parameter.
//
// It has a lock of its own: a trainer is asked to open a step while it already computes the
// next gradient.
type history struct {
	mu     sync.Mutex
	kernel *distro.Kernel
	layout []distro.Layout
	shapes audit.Shapes
	deltas [][]float32 // the optimizer's

	steps  []committed // newest last: the newest, the one before, and one more
	before [][]float32 // momentum after the one before
	after  [][]float32 // momentum after the newest, if deltas changed since
	moved  bool        // they did: a result was given back
}

// committed is a result that a root stands for.
type committed struct {
	step     uint32
	previous uint32
	digests  [][32]byte
	tree     *merkle.Tree
	taken    []codec.TensorResult
	returned uint32 // newest step when it was given back; 0: it was not
}

// maxCommitted is as many as an opening can be about: with an apply_lag of 2 a result is given
// back after the next one was sent.
const maxCommitted = 3

func newHistory(kernel *distro.Kernel, layouts []distro.Layout, topK int, deltas [][]float32) *history {
	h := &history{kernel: kernel, layout: layouts, deltas: deltas}
	for _, l := range layouts {
		h.shapes = append(h.shapes, l.Shape(topK))
		h.before = append(h.before, make([]float32, l.Elements()))
	}
	return h
}

// begin is called with the lock before a step changes the momentum: it keeps what the newest
// result was committed to.
func (h *history) begin() {
	if h.moved {
		h.before, h.after, h.moved = h.after, h.before, false
		return
	}
	if len(h.steps) == 0 {
		return // zeros, which nobody opens
	}
	for i, delta := range h.deltas {
		copy(h.before[i], delta)
	}
}

// commit is called with the lock after a step changed the momentum. It returns the root, and
// which step the momentum goes on from.
func (h *history) commit(step uint32, taken []codec.TensorResult) (root [32]byte, previous uint32, err error) {
	c := committed{step: step, taken: taken}
	var leaves [][32]byte
	for i, l := range h.layout {
		digests, ofTensor, err := h.kernel.Leaves(l, h.deltas[i], taken[i])
		if err != nil {
			return root, 0, fmt.Errorf("tensor %d: %w", i, err)
		}
		c.digests, leaves = append(c.digests, digests...), append(leaves, ofTensor...)
	}
	c.tree = merkle.NewTree(leaves)
	if n := len(h.steps); n > 0 {
		c.previous = h.steps[n-1].step
	}
	if h.steps = append(h.steps, c); len(h.steps) > maxCommitted {
		h.steps = h.steps[len(h.steps)-maxCommitted:]
	}
	return c.tree.Root(), c.previous, nil
}

// giving is called with the lock before a step's result goes back to the momentum.
func (h *history) giving(step uint32) {
	if !h.moved && len(h.steps) > 0 {
		for i, delta := range h.deltas {
			if len(h.after) <= i {
				h.after = append(h.after, make([]float32, len(delta)))
			}
			copy(h.after[i], delta)
		}
		h.moved = true
	}
	for i := range h.steps {
		if h.steps[i].step == step {
			h.steps[i].returned = h.steps[len(h.steps)-1].step
		}
	}
}

// forget is called with the lock when the momentum begins afresh.
func (h *history) forget() { h.steps, h.moved = nil, false }

// open shows chunks of the newest step.
func (h *history) open(step uint32, trainer [32]byte, chunks []uint32) (audit.Opening, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.steps)
	if n == 0 || h.steps[n-1].step != step {
		return audit.Opening{}, fmt.Errorf("%w: it is not the newest that was trained", ErrStep)
	}
	now, after := h.steps[n-1], h.deltas
	if h.moved {
		after = h.after
	}
	o := audit.Opening{Step: step, Trainer: trainer, Previous: now.previous}
	var earlier *committed
	if n == maxCommitted && h.steps[0].returned == h.steps[1].step {
		earlier = &h.steps[0]
		o.Earlier = earlier.step
	}
	for _, chunk := range chunks {
		tensor, within, ok := h.shapes.Find(chunk)
		if !ok {
			return audit.Opening{}, fmt.Errorf("%w: chunk %d of %d", ErrResult, chunk, h.shapes.Chunks())
		}
		opened := audit.Opened{Chunk: chunk, After: h.state(now, after, chunk, tensor, within)}
		if o.Previous != 0 {
			opened.Before = h.state(h.steps[n-2], h.before, chunk, tensor, within)
		}
		if earlier != nil {
			opened.Return = audit.Past{
				Digest: earlier.digests[chunk],
				Taken:  distro.TakenOf(earlier.taken[tensor], within, h.shapes[tensor].Chunks),
				Path:   earlier.tree.Prove(int(chunk)),
			}
		}
		o.Chunks = append(o.Chunks, opened)
	}
	return o, nil
}

func (h *history) state(c committed, momentum [][]float32, chunk uint32, tensor, within int) audit.State {
	return audit.State{
		Momentum: h.layout[tensor].Chunk(momentum[tensor], within, nil),
		Taken:    distro.TakenOf(c.taken[tensor], within, h.shapes[tensor].Chunks),
		Path:     c.tree.Prove(int(chunk)),
	}
}
