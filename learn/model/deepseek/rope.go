package deepseek

import (
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// Rope contains the rotation speeds of the rotary positions.
type Rope struct {
	rotary.Rope
	// Interleaved rotates elements 2i and 2i+1 of a head together, instead of i and i+D/2.
	Interleaved bool
}

func (c *Config) rope(p *hfconfig.Checker, d hfconfig.Document, interleave *bool) {
	c.Rope = Rope{Rope: rotary.Parse(p, d, c.MaxPositionEmbeddings, "default", "yarn"), Interleaved: true}
	if interleave != nil && c.v3() {
		c.Rope.Interleaved = *interleave
	}
}

// rotations returns the tables of cosines and sines for count positions from first on.
func (m *DeepSeek) rotations(s *torch.Scope, first, count int64) (cos, sin *torch.Tensor) {
	c := m.config
	return m.rotation.Rows(s, first, count, int64(c.MaxPositionEmbeddings), func() rotary.Turns { return c.Rope.Turns(c.QKRopeHeadDim) })
}

// rotate rotates heads x [B,T,H,QKRopeHeadDim] by their positions. Interleaved pairs are separated
// to elements i and i+D/2, for both queries and keys, so their products are the same.
func (m *DeepSeek) rotate(x, cos, sin *torch.Tensor) *torch.Tensor {
	if m.config.Rope.Interleaved {
		x = rotary.Deinterleave(x)
	}
	return x.RoPE(cos, sin)
}
