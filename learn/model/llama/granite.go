package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// graniteFields contains the fields of Granite.
type graniteFields struct {
	Embedding *float64 `json:"embedding_multiplier"`
	Attention *float64 `json:"attention_multiplier"`
	Residual  *float64 `json:"residual_multiplier"`
	Logits    *float64 `json:"logits_scaling"`
}

// varyGranite scales embeddings, scores, outputs of sublayers, and logits.
func varyGranite(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	varyLlama(c, p, d, o)
	c.Scales.Embedding = p.Number("embedding_multiplier", o.Embedding, 1, 1e-9, 1e9)
	c.Scales.Score = p.Number("attention_multiplier", o.Attention, 1, 1e-9, 1e9)
	c.Scales.Residual = p.Number("residual_multiplier", o.Residual, 1, 1e-9, 1e9)
	c.Scales.Logits = 1 / p.Number("logits_scaling", o.Logits, 1, 1e-9, 1e9)
}
