package llama

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
)

// gemmaFields are those of Gemma 2 and 3.
type gemmaFields struct {
	HiddenActivation *string  `json:"hidden_activation"`
	QueryScalar      *float64 `json:"query_pre_attn_scalar"`
	ScoreCap         limit    `json:"attn_logit_softcapping"`
	LogitCap         limit    `json:"final_logit_softcapping"`
	Bidirectional    bool     `json:"use_bidirectional_attention"`
	Pattern          *int     `json:"sliding_window_pattern"`
	LocalTheta       *float64 `json:"rope_local_base_freq"`

	Ropes struct {
		Global *hfconfig.RopeScaling `json:"full_attention"`
		Local  *hfconfig.RopeScaling `json:"sliding_attention"`
	} `json:"rope_parameters"`
}

// limit is what a number stays below, or null for none, which is not the same as nothing.
type limit struct {
	written bool
	value   *float64
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *limit) UnmarshalJSON(data []byte) error {
	l.written = true
	if err := json.Unmarshal(data, &l.value); err != nil {
		return fmt.Errorf("softcapping: want a number or null, not %s", data)
	}
	return nil
}

// or is the limit, that one where nothing is written, or 0 for none.
func (l limit) or(p *hfconfig.Checker, field string, value float64) float64 {
	if !l.written {
		return value
	}
	if l.value == nil {
		return 0
	}
	return p.Number(field, l.value, 0, 1e-3, 1e9)
}

// gemma is what both have: norms before and after, of weights that one is added to, GELU, scaled
// embeddings, and windows in some layers.
func (c *Config) gemma(p *hfconfig.Checker, d hfconfig.Document, o own, every int) {
	requireKeyValueHeads(p, d)
	if a := o.HiddenActivation; a != nil && *a != "gelu_pytorch_tanh" {
		p.Refuse("hidden_activation", *a)
	}
	if o.Bidirectional {
		p.Refuse("use_bidirectional_attention", true)
	}
	if d.MLPBias {
		p.Refuse("mlp_bias", true)
	}
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias}
	c.Norms = Norms{After: true, OneMore: true}
	c.Scales.Embedding = float64(float32(math.Sqrt(float64(c.HiddenSize))))
	c.Scales.Score = 1 / math.Sqrt(p.Number("query_pre_attn_scalar", o.QueryScalar, 256, 1e-6, 1e9))
	tokens := o.SlidingWindow.or(p, defaultWindow)
	c.windows(p, o, tokens, func(layer int) bool { return (layer+1)%every != 0 })
}

// varyGemma2 caps scores and logits, and gives every second layer a window.
func varyGemma2(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.gemma(p, d, o, 2)
	c.Scales.ScoreCap = o.ScoreCap.or(p, "attn_logit_softcapping", 50)
	c.Scales.LogitCap = o.LogitCap.or(p, "final_logit_softcapping", 30)
}

// varyGemma3 adds norms of each head of queries and keys. Layers with windows, most of them, turn by
// positions of their own.
func varyGemma3(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.gemma(p, d, o, p.Size("sliding_window_pattern", o.Pattern, 6, 1<<12))
	c.Norms.Heads = true
	if o.ScoreCap.value != nil {
		p.Refuse("attn_logit_softcapping", *o.ScoreCap.value)
	}
	c.Scales.LogitCap = o.LogitCap.or(p, "final_logit_softcapping", 0)
	for i := range c.Layers {
		c.Layers[i].Local = c.Layers[i].Window > 0
	}
	if d.RopeParameters != nil && d.RopeScaling != nil {
		p.Fail("rope_parameters and rope_scaling are both there: keep the one that the model was trained with")
	}
	if r := d.RopeParameters; r != nil && (r.RopeType != nil || r.Type != nil || r.RopeTheta != nil || r.Factor != nil) {
		p.Fail("rope_parameters apply to all layers, want them below full_attention and sliding_attention")
	}
	local := d
	local.RopeScaling, local.RopeParameters, local.RopeTheta = nil, o.Ropes.Local, o.LocalTheta
	if local.RopeTheta == nil {
		local.RopeTheta = new(1e4)
	}
	if d.RopeParameters != nil {
		d.RopeParameters = o.Ropes.Global
	}
	c.Rope = rotary.Parse(p, d, c.MaxPositionEmbeddings, ropes...)
	if c.Layers != nil {
		c.LocalRope = rotary.Parse(p, local, c.MaxPositionEmbeddings, ropes...)
	}
}
