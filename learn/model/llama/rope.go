package llama

import (
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// rotations gives the tables of cosines and sines for count positions from first on.
func (m *Llama) rotations(s *torch.Scope, first, count int64) (cos, sin *torch.Tensor) {
	c := m.config
	return m.rotation.Rows(s, first, count, int64(c.MaxPositionEmbeddings), func() rotary.Turns { return c.Rope.Turns(c.HeadDim) })
}
