package main

import (
	"fmt"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/distro"
	"github.com/psyche-go/psyche/distro/codec"
	"github.com/psyche-go/psyche/merkle"
)

// cutting is the model's chunks as tensors whose chunks lie one after the other, so that the
// optimizer works on what workers send.
type cutting struct {
	kernel  *distro.Kernel
	shapes  audit.Shapes
	layouts []distro.Layout
}

func newCutting(shapes audit.Shapes) (*cutting, error) {
	kernel, err := distro.NewKernel(distro.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	c := &cutting{kernel: kernel, shapes: shapes}
	for _, s := range shapes {
		layout, err := distro.NewLayout([]int64{int64(s.Chunks), int64(s.Rows), int64(s.Cols)}, chunkEdge)
		if err != nil {
			return nil, err
		}
		if layout.Shape(topK) != s {
			return nil, fmt.Errorf("tensor of %+v is cut into %+v", s, layout.Shape(topK))
		}
		c.layouts = append(c.layouts, layout)
	}
	return c, nil
}

// zeros returns a momentum of nothing.
func (c *cutting) zeros() [][]float32 {
	all := make([][]float32, len(c.layouts))
	for i, l := range c.layouts {
		all[i] = make([]float32, l.Elements())
	}
	return all
}

// tensors joins chunks to tensors.
func (c *cutting) tensors(chunks [][]float32) [][]float32 {
	all, at := make([][]float32, len(c.shapes)), 0
	for i, s := range c.shapes {
		for range s.Chunks {
			all[i] = append(all[i], chunks[at]...)
			at++
		}
	}
	return all
}

// made is a trainer's state after a step.
type made struct {
	step, previous uint32
	momentum       [][]float32
	taken          []codec.TensorResult
	tree           *merkle.Tree
}

// advance makes the next state of a momentum by an update.
func (c *cutting) advance(from *made, step uint32, update [][]float32) (*made, error) {
	m := &made{step: step, momentum: copied(from.momentum), previous: from.step}
	for i, l := range c.layouts {
		taken, err := c.kernel.Encode(l, m.momentum[i], update[i], distro.EncodeParams{Decay: momentumDecay, LR: 1, TopK: topK})
		if err != nil {
			return nil, err
		}
		m.taken = append(m.taken, taken)
	}
	return m, nil
}

// commit makes the tree of a state, once.
func (c *cutting) commit(m *made) error {
	if m.tree != nil {
		return nil
	}
	var leaves [][32]byte
	for i, l := range c.layouts {
		_, ofTensor, err := c.kernel.Leaves(l, m.momentum[i], m.taken[i])
		if err != nil {
			return err
		}
		leaves = append(leaves, ofTensor...)
	}
	m.tree = merkle.NewTree(leaves)
	return nil
}

// claim opens chunks of a state and of the one that it goes on from.
func (c *cutting) claim(from, to *made, trainer [32]byte, chunks []uint32) (audit.Claim, error) {
	if err := c.commit(to); err != nil {
		return audit.Claim{}, err
	}
	claim := audit.Claim{
		Opening: audit.Opening{Step: to.step, Trainer: trainer, Previous: to.previous},
		Result:  to.taken,
		Header:  codec.Header{Step: to.step, Trainer: trainer, Momentum: to.tree.Root(), Previous: to.previous},
	}
	if from.step > 0 { // else it is zeros, of which nothing is opened
		if err := c.commit(from); err != nil {
			return audit.Claim{}, err
		}
		claim.PreviousRoot = from.tree.Root()
	}
	for _, chunk := range chunks {
		opened := audit.Opened{Chunk: chunk, After: c.state(to, chunk)}
		if from.step > 0 {
			opened.Before = c.state(from, chunk)
		}
		claim.Opening.Chunks = append(claim.Opening.Chunks, opened)
	}
	return claim, nil
}

func (c *cutting) state(m *made, chunk uint32) audit.State {
	tensor, within, _ := c.shapes.Find(chunk)
	return audit.State{
		Momentum: c.layouts[tensor].Chunk(m.momentum[tensor], within, nil),
		Taken:    distro.TakenOf(m.taken[tensor], within, c.shapes[tensor].Chunks),
		Path:     m.tree.Prove(int(chunk)),
	}
}

func (c *cutting) payload(m *made, member int, batch, batches uint64) ([]byte, error) {
	layouts := make([]codec.TensorLayout, len(c.layouts))
	for i, l := range c.layouts {
		layouts[i] = l.Codec(topK)
	}
	return codec.Encode(codec.Header{RunHash: runHash, Step: m.step, BatchStart: batch, BatchEnd: batches, Trainer: key(member)}, layouts, true, m.taken)
}

func key(member int) [32]byte { return [32]byte{byte(member) + 1} }

func copied(all [][]float32) [][]float32 {
	other := make([][]float32, len(all))
	for i, one := range all {
		other[i] = append([]float32(nil), one...)
	}
	return other
}
