package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// varyOLMo2: what attention and feed-forward layer give has a norm, and not what goes in; queries and
// keys have one over all heads.
func varyOLMo2(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	noWindows(p, o)
	c.Norms = Norms{After: true, NotIn: true, All: true}
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias}
	if d.MLPBias {
		p.Refuse("mlp_bias", true)
	}
}
