package llama

import (
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// varyGemma1 sets scaled embeddings and norms that multiply by one plus their weights.
func varyGemma1(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	requireKeyValueHeads(p, d)
	noWindows(p, o)
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
	c.Norms = Norms{OneMore: true}
	c.Scales.Embedding = float64(float32(math.Sqrt(float64(c.HiddenSize))))
}
