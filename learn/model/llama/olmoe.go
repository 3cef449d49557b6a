package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// olmoFields contains fields of OLMoE.
type olmoFields struct {
	Clip *float64 `json:"clip_qkv"`
}

// varyOLMoE adds experts to every layer. One norm covers all heads of queries, a second all heads
// of keys.
func varyOLMoE(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	noWindows(p, o)
	o.refuseRouting(p)
	switch {
	case o.Clip != nil:
		p.Refuse("clip_qkv", *o.Clip)
	case d.MLPBias:
		p.Refuse("mlp_bias", true)
	case c.HeadDim*c.NumAttentionHeads != c.HiddenSize:
		p.Fail("head_dim %d times num_attention_heads %d must equal hidden_size %d, the width of the norm of queries", c.HeadDim, c.NumAttentionHeads, c.HiddenSize)
	}
	c.Norms.All = true
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias}
	c.addExperts(p, Experts{
		Count:            p.Size("num_experts", sameCount(p, "num_experts", o.NumExperts, "num_local_experts", o.NumLocalExperts), 64, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 8, maxExpertsOfLayer),
		IntermediateSize: c.IntermediateSize,
		Normalize:        flag(o.Normalize, false),
		Names:            qwenNames,
	}, "num_experts", func(int) bool { return true })
}
