package llama

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// gemmaFields contains the fields of Gemma 2 and 3.
type gemmaFields struct {
	HiddenActivation *string  `json:"hidden_activation"`
	QueryScalar      *float64 `json:"query_pre_attn_scalar"`
	ScoreCap         limit    `json:"attn_logit_softcapping"`
	LogitCap         limit    `json:"final_logit_softcapping"`
	Bidirectional    bool     `json:"use_bidirectional_attention"`
	Pattern          *int     `json:"sliding_window_pattern"`
	LocalTheta       *float64 `json:"rope_local_base_freq"`
}

// limit is an upper limit, or null for none, which differs from an absent field.
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

// or returns the limit, the given value if the field is absent, or 0 for none.
func (l limit) or(p *hfconfig.Checker, field string, value float64) float64 {
	if !l.written {
		return value
	}
	if l.value == nil {
		return 0
	}
	return p.Number(field, l.value, 0, 1e-3, 1e9)
}

// gemma sets the common features of Gemma 2 and 3: norms before and after each sublayer, with one
// added to their weights, GELU, scaled embeddings, and windows in some layers.
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

// varyGemma3 adds norms of each head of queries and keys. Layers with windows, which are most of
// them, have their own rotary positions.
func varyGemma3(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.gemma(p, d, o, p.Size("sliding_window_pattern", o.Pattern, 6, 1<<12))
	c.Norms.Heads = true
	if o.ScoreCap.value != nil {
		p.Refuse("attn_logit_softcapping", *o.ScoreCap.value)
	}
	c.Scales.LogitCap = o.LogitCap.or(p, "final_logit_softcapping", 0)
	localTheta := o.LocalTheta
	if localTheta == nil {
		localTheta = new(1e4)
	}
	c.layerRopes(p, d, o, localTheta)
}
