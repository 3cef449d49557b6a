package audit_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/learn/distro"
)

const (
	decay = 0.9
	topK  = 4
)

// rig is a trainer without a model: the optimizer of two matrices and a vector.
type rig struct {
	t       testing.TB
	kernel  *distro.Kernel
	layouts []distro.Layout
	shapes  audit.Shapes
	deltas  [][]float32
	random  *rand.Rand
	history []made // oldest first
}

// made contains the data of a step that the trainer keeps.
type made struct {
	header   codec.Header
	momentum [][]float32 // momentum after the step
	taken    []codec.TensorResult
	tree     *merkle.Tree
}

func newRig(t testing.TB) *rig {
	t.Helper()
	kernel, err := distro.NewKernel(distro.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, kernel: kernel, random: rand.New(rand.NewPCG(1, 2))}
	for _, shape := range [][]int64{{32, 48}, {24}, {20, 12}} {
		layout, err := distro.NewLayout(shape, 16)
		if err != nil {
			t.Fatal(err)
		}
		r.layouts = append(r.layouts, layout)
		r.shapes = append(r.shapes, layout.Shape(topK))
		r.deltas = append(r.deltas, make([]float32, layout.Elements()))
	}
	return r
}

// gradient draws a random gradient.
func (r *rig) gradient() [][]float32 {
	g := make([][]float32, len(r.layouts))
	for i, l := range r.layouts {
		g[i] = make([]float32, l.Elements())
		for j := range g[i] {
			g[i][j] = float32(r.random.NormFloat64())
		}
	}
	return g
}

// train encodes a step with the gradient.
func (r *rig) train(step uint32, gradient [][]float32) *made {
	r.t.Helper()
	m := made{header: codec.Header{Step: step, BatchEnd: 1, Trainer: [32]byte{7}}}
	if len(r.history) > 0 {
		m.header.Previous = r.history[len(r.history)-1].header.Step
	}
	var leaves [][32]byte
	for i, l := range r.layouts {
		taken, err := r.kernel.Encode(l, r.deltas[i], gradient[i], distro.EncodeParams{Decay: audit.Decayed(decay, step-m.header.Previous), LR: 1, TopK: topK, Floor: audit.Least})
		if err != nil {
			r.t.Fatal(err)
		}
		_, l, err := r.kernel.Leaves(l, r.deltas[i], taken)
		if err != nil {
			r.t.Fatal(err)
		}
		m.taken, m.momentum = append(m.taken, taken), append(m.momentum, slices.Clone(r.deltas[i]))
		leaves = append(leaves, l...)
	}
	m.tree = merkle.NewTree(leaves)
	m.header.Momentum = m.tree.Root()
	r.history = append(r.history, m)
	return &r.history[len(r.history)-1]
}

// rollback undoes the newest step, as if no witness held it.
func (r *rig) rollback() {
	r.history = r.history[:len(r.history)-1]
	for i, delta := range r.deltas {
		clear(delta)
		if n := len(r.history); n > 0 {
			copy(delta, r.history[n-1].momentum[i])
		}
	}
}

func (r *rig) state(m *made, chunk uint32) audit.State {
	tensor, within, _ := r.shapes.Find(chunk)
	s := audit.State{
		Momentum: r.layouts[tensor].Chunk(m.momentum[tensor], within, nil),
		Taken:    distro.TakenOf(m.taken[tensor], within, r.shapes[tensor].Chunks),
		Path:     m.tree.Prove(int(chunk)),
	}
	s.Taken.Indices, s.Taken.Values = slices.Clone(s.Taken.Indices), slices.Clone(s.Taken.Values)
	return s
}

// claim opens the newest step.
func (r *rig) claim(chunks []uint32) audit.Claim {
	now := &r.history[len(r.history)-1]
	o := audit.Opening{Step: now.header.Step, Trainer: now.header.Trainer, Previous: now.header.Previous}
	c := audit.Claim{Result: now.taken, Header: now.header}
	for _, chunk := range chunks {
		opened := audit.Opened{Chunk: chunk, After: r.state(now, chunk)}
		if o.Previous != 0 {
			before := &r.history[len(r.history)-2]
			opened.Before, c.PreviousRoot = r.state(before, chunk), before.header.Momentum
		}
		o.Chunks = append(o.Chunks, opened)
	}
	c.Opening = o
	return c
}

// reference returns the reference of an auditor with the given gradient.
func (r *rig) reference(chunks []uint32, gradient [][]float32) *audit.Reference {
	e := &audit.Reference{
		Shapes: r.shapes, Step: r.history[len(r.history)-1].header.Step, Trainer: [32]byte{7},
		Decay: decay, Signs: true, Chunks: chunks, Longest: 1e6, Most: 1e3,
	}
	for _, chunk := range chunks {
		tensor, within, _ := r.shapes.Find(chunk)
		e.Updates = append(e.Updates, r.layouts[tensor].Chunk(gradient[tensor], within, nil))
		e.Usual = append(e.Usual, 1)
	}
	return e
}

func (r *rig) all() []uint32 {
	chunks := make([]uint32, r.shapes.Chunks())
	for i := range chunks {
		chunks[i] = uint32(i)
	}
	return chunks
}

// perturbed returns the gradient as computed on a different machine: each value has a random
// relative error of the size by.
func (r *rig) perturbed(gradient [][]float32, by float64) [][]float32 {
	other := make([][]float32, len(gradient))
	for i, g := range gradient {
		for _, v := range g {
			other[i] = append(other[i], v*float32(1+by*r.random.NormFloat64()))
		}
	}
	return other
}
