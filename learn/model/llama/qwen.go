package llama

import (
	"slices"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// varyQwen2 adds biases of queries, keys and values, and windows in the upper layers if configured.
func varyQwen2(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	d.RefuseBiases(p)
	requireKeyValueHeads(p, d)
	c.Biases.QueryKeyValue = true
	c.upperWindows(p, o)
}

// varyQwen3 adds norms of each head of queries and keys, and biases of the attention if configured.
func varyQwen3(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.qwen3(p, d)
	c.upperWindows(p, o)
}

func (c *Config) qwen3(p *hfconfig.Checker, d hfconfig.Document) {
	requireKeyValueHeads(p, d)
	c.Norms.Heads = true
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias}
	if d.MLPBias {
		p.Refuse("mlp_bias", true)
	}
}

// varyQwen3MoE is Qwen 3 with experts in most layers.
func varyQwen3MoE(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.qwen3(p, d)
	noWindows(p, o)
	if o.UseSlidingWindow {
		p.Refuse("use_sliding_window", true)
	}
	o.refuseRouting(p)
	e := Experts{
		Count:            p.Size("num_experts", sameCount(p, "num_experts", o.NumExperts, "num_local_experts", o.NumLocalExperts), 128, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 8, maxExpertsOfLayer),
		IntermediateSize: p.Size("moe_intermediate_size", o.ExpertSize, 768, 1<<20),
		Normalize:        flag(o.Normalize, false),
		Names:            qwenNames,
	}
	step := p.Size("decoder_sparse_step", o.SparseStep, 1, 1<<12)
	c.addExperts(p, e, "num_experts", func(layer int) bool { return (layer+1)%step == 0 && !slices.Contains(o.DenseLayers, layer) })
}

// upperWindows gives windows to the layers from max_window_layers on, if use_sliding_window.
func (c *Config) upperWindows(p *hfconfig.Checker, o own) {
	if !o.UseSlidingWindow {
		noWindows(p, o)
		return
	}
	first := p.Count("max_window_layers", o.MaxWindowLayers, 28, 1<<12)
	tokens := o.SlidingWindow.or(p, defaultWindow)
	c.windows(p, o, tokens, func(layer int) bool { return tokens > 0 && layer >= first })
}
