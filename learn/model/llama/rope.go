package llama

import (
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// rotation are cosines and sines of some positions.
type rotation struct{ cos, sin *torch.Tensor }

// turned are those of all kinds of layers.
type turned struct {
	global, local rotation
	temper        *torch.Tensor // factors [positions] of queries in layers without positions; nil: 1
}

// of are those of a layer.
func (t turned) of(l Layer) rotation {
	if l.Local {
		return t.local
	}
	return t.global
}

// long tells whether a text of so many tokens turns otherwise, as it has more than the model was first trained with.
func (m *Llama) long(tokens int64) bool {
	long := m.config.Rope.Long
	return long != nil && tokens > long.OriginalContext
}

// rotations gives the cosines and sines for count positions from first on, of a text that is long or not.
func (m *Llama) rotations(s *torch.Scope, first, count int64, long bool) turned {
	c := m.config
	rows := func(table *rotary.Table, rope rotary.Rope) (r rotation) {
		r.cos, r.sin = table.Rows(s, first, count, int64(c.MaxPositionEmbeddings), func() rotary.Turns { return rope.Turns(c.Turning) })
		return r
	}
	var at turned
	if long {
		at.global = rows(&m.longRotation, c.Rope.Lengthened())
	} else {
		at.global = rows(&m.rotation, c.Rope)
	}
	if c.LocalRope.Type != "" {
		at.local = rows(&m.localRotation, c.LocalRope)
	}
	if c.Temper != (Temper{}) {
		at.temper = c.Temper.at(s, first, count)
	}
	return at
}

// turn turns the first elements of the heads of x [B,T,heads,HeadDim] by their positions.
func (m *Llama) turn(s *torch.Scope, x *torch.Tensor, at rotation) *torch.Tensor {
	turning, all := int64(m.config.Turning), int64(m.config.HeadDim)
	if m.config.Neighbours { // queries and keys get the same new order of elements, so scores stay equal
		shape := x.Shape()
		x = x.Reshape(shape[0], shape[1], shape[2], all/2, 2).Transpose(3, 4).Reshape(shape...)
	}
	if turning == all {
		return x.RoPE(at.cos, at.sin)
	}
	return s.Cat(3, x.Narrow(3, 0, turning).RoPE(at.cos, at.sin), x.Narrow(3, turning, all-turning))
}
