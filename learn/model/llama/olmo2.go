package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// varyOLMo2 uses norms after attention and feed-forward layer instead of before them, one norm over
// all heads of queries, and one over all heads of keys.
func varyOLMo2(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	noWindows(p, o)
	c.olmo2(p, d)
}

func (c *Config) olmo2(p *hfconfig.Checker, d hfconfig.Document) {
	c.Norms = Norms{After: true, NotIn: true, All: true}
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias}
	if d.MLPBias {
		p.Refuse("mlp_bias", true)
	}
}
