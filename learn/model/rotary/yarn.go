package rotary

import (
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// Yarn slows slow rotations for a context longer than that of the training (Peng et al., arXiv
// 2309.00071).
type Yarn struct {
	Factor             float64 // factor between the new and the original length of the context
	OriginalContext    float64 // tokens
	BetaFast, BetaSlow float64 // rotations over OriginalContext: a pair with more than BetaFast is unchanged, with fewer than BetaSlow slowed by Factor
	Truncate           bool    // the borders between these are rounded to whole elements
	TableScale         float64 // factor of cosines and sines
	// ScoreScale is an additional factor of the attention scores, used only by DeepSeek.
	ScoreScale float64
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

// magnitude returns the factor for the scores of attention, which must be larger in a longer
// context.
func magnitude(factor, scale float64) float64 { return 0.1*scale*math.Log(factor) + 1 }

// borders returns the pairs between which YaRN changes from unchanged to slowed.
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
