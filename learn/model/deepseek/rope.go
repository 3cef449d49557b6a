package deepseek

import (
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// Rope says how fast the rotary positions turn.
type Rope struct {
	Theta float64
	// Interleaved: the pairs that turn together are elements 2i and 2i+1, not i and
	// i+D/2 of a head.
	Interleaved bool
	Yarn        *Yarn // nil: turned as they are
}

// Yarn slows down slow rotations for a context longer than the one trained with (Peng et
// al., arXiv 2309.00071).
type Yarn struct {
	Factor             float64 // by which the context is longer
	OriginalContext    float64 // tokens
	BetaFast, BetaSlow float64 // rotations over that context: above fast untouched, below slow all of the factor
	Truncate           bool    // the borders between these are whole elements
	TableScale         float64 // of cosines and sines
	ScoreScale         float64 // of the scores of attention
}

func (c *Config) rope(p *hfconfig.Checker, d hfconfig.Document, interleave *bool) {
	written := d.Rope(p, 1+1e-6, "default", "yarn")
	c.Rope = Rope{Theta: written.Theta, Interleaved: true}
	if interleave != nil && c.v3() {
		c.Rope.Interleaved = *interleave
	}
	if written.Type == "yarn" {
		c.Rope.Yarn = yarn(p, written.Scaling, written.Field, c.MaxPositionEmbeddings)
	}
}

func yarn(p *hfconfig.Checker, s hfconfig.RopeScaling, field string, positions int) *Yarn {
	original := p.Number(field+".original_max_position_embeddings", s.Original, float64(positions), 1, 1<<26)
	y := &Yarn{
		Factor:          p.Number(field+".factor", s.Factor, max(float64(positions)/original, 1), 1, 1e6),
		OriginalContext: original,
		BetaFast:        p.Number(field+".beta_fast", s.BetaFast, 32, 1e-3, 1e6),
		BetaSlow:        p.Number(field+".beta_slow", s.BetaSlow, 1, 1e-3, 1e6),
		Truncate:        s.Truncate == nil || *s.Truncate,
		ScoreScale:      1,
	}
	part := p.Number(field+".mscale", s.MScale, 0, 0, 1e3)
	all := p.Number(field+".mscale_all_dim", s.MScaleAllDim, 0, 0, 1e3)
	table := magnitude(y.Factor, 1)
	if part != 0 && all != 0 {
		table = magnitude(y.Factor, part) / magnitude(y.Factor, all)
	}
	y.TableScale = p.Number(field+".attention_factor", s.AttentionFactor, table, 0, 1e6)
	if all != 0 {
		y.ScoreScale = magnitude(y.Factor, all) * magnitude(y.Factor, all)
	}
	return y
}

// magnitude is by how much longer contexts want larger scores.
func magnitude(factor, scale float64) float64 { return 0.1*scale*math.Log(factor) + 1 }

// frequencies are the angles by which each pair of elements turns per position, in
// radians, rounded to f32 as transformers does, since a model was trained with those.
func (r Rope) frequencies(width int) []float32 {
	out := make([]float32, width/2)
	low, high := r.Yarn.borders(width, r.Theta)
	for i := range out {
		turned := float32(math.Pow(float64(float32(r.Theta)), float64(float32(2*i)/float32(width))))
		out[i] = 1 / turned
		if r.Yarn != nil {
			slowed := 1 / (float32(r.Yarn.Factor) * turned)
			kept := 1 - min(max((float32(i)-low)/(high-low), 0), 1)
			out[i] = slowed*(1-kept) + out[i]*kept
		}
	}
	return out
}

// borders are the pairs between which YaRN goes over from untouched to slowed down.
func (y *Yarn) borders(width int, theta float64) (low, high float32) {
	if y == nil {
		return 0, 1
	}
	pair := func(rotations float64) float64 {
		return float64(width) * math.Log(y.OriginalContext/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	first, last := pair(y.BetaFast), pair(y.BetaSlow)
	if y.Truncate {
		first, last = math.Floor(first), math.Ceil(last)
	}
	first, last = max(first, 0), min(last, float64(width-1))
	if first == last {
		last += 0.001
	}
	return float32(first), float32(last)
}

// rotations gives the tables of cosines and sines for count positions from first on.
func (m *DeepSeek) rotations(s *torch.Scope, first, count int64) (cos, sin *torch.Tensor) {
	c := m.config
	return m.rotation.Rows(s, first, count, int64(c.MaxPositionEmbeddings), func() rotary.Turns {
		turns := rotary.Turns{Frequencies: c.Rope.frequencies(c.QKRopeHeadDim), Scale: 1}
		if c.Rope.Yarn != nil {
			turns.Scale = c.Rope.Yarn.TableScale
		}
		return turns
	})
}

// rotate turns heads x [B,T,H,QKRopeHeadDim] by their positions. Interleaved pairs come
// out apart, elements i and i+D/2: queries and keys alike, so their products are the same.
func (m *DeepSeek) rotate(x, cos, sin *torch.Tensor) *torch.Tensor {
	if m.config.Rope.Interleaved {
		shape := x.Shape()
		x = x.Reshape(shape[0], shape[1], shape[2], shape[3]/2, 2).Transpose(3, 4).Reshape(shape...)
	}
	return x.RoPE(cos, sin)
}
