package momenta

import (
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// Overlap measures how similar the choices of two results are.
type Overlap struct {
	Entries  int // of the first result
	Same     int // in both results, with the same sign
	Opposite int // in both results, with opposite signs
}

// Compare compares two results of tensors with these shapes.
func Compare(shapes audit.Shapes, a, b []codec.TensorResult) Overlap {
	var o Overlap
	for i, shape := range shapes {
		for c := range shape.Chunks {
			o.add(distro.TakenOf(a[i], c, shape.Chunks), distro.TakenOf(b[i], c, shape.Chunks))
		}
	}
	return o
}

// add compares two ascending lists.
func (o *Overlap) add(a, b audit.Taken) {
	o.Entries += len(a.Indices)
	for i, j := 0, 0; i < len(a.Indices) && j < len(b.Indices); {
		switch {
		case a.Indices[i] < b.Indices[j]:
			i++
		case a.Indices[i] > b.Indices[j]:
			j++
		default:
			if (a.Values[i] < 0) == (b.Values[j] < 0) {
				o.Same++
			} else {
				o.Opposite++
			}
			i, j = i+1, j+1
		}
	}
}

// Agreement returns the share of the coefficients taken from a chunk in a step that would also have
// been taken with a different update, and the share of these with the same sign.
func (c *Cutting) Agreement(from, to *State, chunk uint32, update []float32) (sets, signs float64, err error) {
	tensor, within, _ := c.Shapes.Find(chunk)
	shape := c.Shapes[tensor]
	taken := distro.TakenOf(to.Taken[tensor], within, shape.Chunks)
	if len(taken.Indices) == 0 {
		return 1, 1, nil
	}
	layout, err := distro.NewLayout([]int64{int64(shape.Rows), int64(shape.Cols)}, c.Edge)
	if err != nil {
		return 0, 0, err
	}
	momentum := c.Layouts[tensor].Chunk(from.Momentum[tensor], within, nil)
	other, err := c.Kernel.Encode(layout, momentum, update, distro.EncodeParams{Decay: c.left(from, to.Step), LR: 1, TopK: len(taken.Indices)})
	if err != nil {
		return 0, 0, err
	}
	var o Overlap
	o.add(taken, distro.TakenOf(other, 0, 1))
	if shared := o.Same + o.Opposite; shared > 0 {
		signs = float64(o.Same) / float64(shared)
	}
	return float64(o.Same+o.Opposite) / float64(len(taken.Indices)), signs, nil
}
