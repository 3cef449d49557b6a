package llama

import (
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// rotation are cosines and sines of some positions.
type rotation struct{ cos, sin *torch.Tensor }

// turned are those of all kinds of layers.
type turned struct{ global, local rotation }

// of are those of a layer.
func (t turned) of(l Layer) rotation {
	if l.Local {
		return t.local
	}
	return t.global
}

// rotations gives the cosines and sines for count positions from first on.
func (m *Llama) rotations(s *torch.Scope, first, count int64) turned {
	c := m.config
	rows := func(table *rotary.Table, rope rotary.Rope) (r rotation) {
		r.cos, r.sin = table.Rows(s, first, count, int64(c.MaxPositionEmbeddings), func() rotary.Turns { return rope.Turns(c.HeadDim) })
		return r
	}
	at := turned{global: rows(&m.rotation, c.Rope)}
	if c.LocalRope.Type != "" {
		at.local = rows(&m.localRotation, c.LocalRope)
	}
	return at
}
