package rotary

import (
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// LongRoPE slows the rotation of each pair of elements by its own factor, and by other factors in
// texts that are longer than the texts of the original training (Ding et al., arXiv 2402.13753).
type LongRoPE struct {
	Short, Long     []float64 // factors of each pair
	OriginalContext int64     // tokens; longer texts use Long from their beginning on
	TableScale      float64   // factor of cosines and sines
}

// ParseLongRoPE returns the rotary positions in Phi 3's config.json for the first width elements of
// each head. Their type is "default" or "longrope", which Phi 3 also calls "su" or "yarn".
// positions is the longest sequence. original is the longest sequence of the original training, for
// a config.json that does not contain it.
func ParseLongRoPE(p *hfconfig.Checker, d hfconfig.Document, positions, original, width int) Rope {
	const name = "longrope"
	written := d.Rope(p, 1, "default", name, "su", "yarn")
	r := Rope{Theta: written.Theta, Type: written.Type}
	if r.Type == "default" || p.Err() != nil {
		return r
	}
	s, field, context := written.Scaling, written.Field, float64(original)
	if outside := d.OriginalMaxPositionEmbeddings; outside != nil {
		context = p.Number("original_max_position_embeddings", outside, 0, 2, 1<<26)
	}
	if s.Original != nil && *s.Original != context {
		p.Fail("%s.original_max_position_embeddings is %v, but original_max_position_embeddings, which takes precedence, is %v", field, *s.Original, context)
	}
	factor := p.Number(field+".factor", s.Factor, float64(positions)/context, 0, 1e6)
	scale := 1.0
	if factor > 1 {
		scale = math.Sqrt(1 + math.Log(factor)/math.Log(context))
	}
	r.Type, r.Long = name, &LongRoPE{
		Short: factors(p, field+".short_factor", s.ShortFactor, width), Long: factors(p, field+".long_factor", s.LongFactor, width),
		OriginalContext: int64(context), TableScale: p.Number(field+".attention_factor", s.AttentionFactor, scale, 0, 1e6),
	}
	return r
}

// factors checks the factors for the pairs of width elements.
func factors(p *hfconfig.Checker, field string, of []float64, width int) []float64 {
	if len(of) != width/2 {
		p.Fail("%s has %d numbers, want %d, one for each pair of the %d rotated elements of a head", field, len(of), width/2, width)
	}
	for _, factor := range of {
		if !(factor > 0 && factor <= 1e6) {
			p.Fail("%s has %v, want more than 0 and at most 1e6", field, factor)
		}
	}
	return of
}

// Lengthened returns the rotation in texts of more tokens than in the original training.
func (r Rope) Lengthened() Rope {
	long := *r.Long
	long.Short = long.Long
	r.Long = &long
	return r
}
