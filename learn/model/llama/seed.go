package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// seedFields contains fields of Seed-OSS.
type seedFields struct {
	OutputBias       bool     `json:"attention_out_bias"`
	Dropout          *float64 `json:"residual_dropout"`
	AttentionDropout *float64 `json:"attention_dropout"`
}

// varySeedOSS adds biases of queries, keys and values. The configuration must disable dropout,
// which is 0.1 by default.
func varySeedOSS(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	noWindows(p, o)
	requireKeyValueHeads(p, d)
	switch s := o.seedFields; {
	case o.HeadDim == nil: // absent and null mean different numbers
		p.Fail("head_dim is missing")
	case s.Dropout == nil:
		p.Fail("residual_dropout is missing, and its default 0.1 is not supported: set it to 0")
	case *s.Dropout != 0:
		p.Refuse("residual_dropout", *s.Dropout)
	case s.AttentionDropout == nil:
		p.Fail("attention_dropout is missing, and its default 0.1 is not supported: set it to 0")
	}
	c.Biases = Biases{QueryKeyValue: flag(o.Biased, true), Output: o.OutputBias, FeedForward: d.MLPBias}
}
