package llama

import (
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// rotation contains cosines and sines of some positions.
type rotation struct{ cos, sin *torch.Tensor }

// turned contains the rotary positions for each kind of layer.
type turned struct {
	global, local rotation
	temper        *torch.Tensor // factors [positions] of queries in layers without positions; nil: 1
}

// of returns the rotation of a layer.
func (t turned) of(l Layer) rotation {
	if l.Local {
		return t.local
	}
	return t.global
}

// long reports whether a text of a number of tokens has another rotation, because it is longer than
// the texts of the original training.
func (m *Llama) long(tokens int64) bool {
	long := m.config.Rope.Long
	return long != nil && tokens > long.OriginalContext
}

// rotations returns the cosines and sines for count positions from first on, of a text that is long
// or not.
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

// partly reads which part of each head rotates. The default is fallback.
func (c *Config) partly(p *hfconfig.Checker, d hfconfig.Document, fallback float64) {
	c.Turning = int(float64(c.HeadDim) * d.PartialRotary(p, fallback))
	if c.Turning < 2 || c.Turning%2 != 0 {
		p.Fail("partial_rotary_factor rotates %d of the %d elements of a head (head_dim), want an even number", c.Turning, c.HeadDim)
	}
}

// layerRopes reads the rotary positions of layers without windows, from rope_scaling or
// rope_parameters.full_attention, and of layers with windows, from
// rope_parameters.sliding_attention. Layers with windows use localTheta if config.json does not set
// theirs.
func (c *Config) layerRopes(p *hfconfig.Checker, d hfconfig.Document, o own, localTheta *float64) {
	for i := range c.Layers {
		c.Layers[i].Local = c.Layers[i].Window > 0
	}
	if d.RopeParameters != nil && d.RopeScaling != nil {
		p.Fail("rope_parameters and rope_scaling are both set: keep the one that the model was trained with")
	}
	if r := d.RopeParameters; r != nil && (r.RopeType != nil || r.Type != nil || r.RopeTheta != nil || r.Factor != nil) {
		p.Fail("rope_parameters apply to all layers, want them below full_attention and sliding_attention")
	}
	local := d
	local.RopeScaling, local.RopeParameters, local.RopeTheta = nil, o.Ropes.Local, localTheta
	if d.RopeParameters != nil {
		d.RopeParameters = o.Ropes.Global
	}
	c.Rope = rotary.Parse(p, d, c.MaxPositionEmbeddings, ropes...)
	if c.Layers != nil {
		c.LocalRope = rotary.Parse(p, local, c.MaxPositionEmbeddings, ropes...)
	}
}

// turnsWhole reports whether whole heads rotate as in Llama.
func (c Config) turnsWhole() bool { return c.Turning == c.HeadDim && !c.Interleaved }

// turn rotates the first elements of the heads of x [B,T,heads,HeadDim] by their positions.
// Interleaved pairs are separated.
func (m *Llama) turn(s *torch.Scope, x *torch.Tensor, at rotation) *torch.Tensor {
	turning, all := int64(m.config.Turning), int64(m.config.HeadDim)
	part := x
	if turning < all {
		part = x.Narrow(3, 0, turning)
	}
	if m.config.Interleaved {
		part = rotary.Deinterleave(part)
	}
	part = part.RoPE(at.cos, at.sin)
	if turning == all {
		return part
	}
	return s.Cat(3, part, x.Narrow(3, turning, all-turning))
}
