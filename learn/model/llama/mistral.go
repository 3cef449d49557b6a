package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// defaultWindow is the sliding_window of a Mistral whose config.json has none.
const defaultWindow = 4096

// varyMistral gives all layers the same window.
func varyMistral(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	d.RefuseBiases(p)
	noWindows(p, o)
	requireKeyValueHeads(p, d)
	tokens := o.SlidingWindow.or(p, defaultWindow)
	c.windows(p, own{}, tokens, func(int) bool { return tokens > 0 })
}

// varyMixtral adds experts to every layer, chosen by softmax. Their shares add up to one.
func varyMixtral(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	d.RefuseBiases(p)
	noWindows(p, o)
	requireKeyValueHeads(p, d)
	tokens := o.SlidingWindow.or(p, 0)
	c.windows(p, own{}, tokens, func(int) bool { return tokens > 0 })
	o.refuseRouting(p)
	e := Experts{
		Count:            p.Size("num_local_experts", o.NumLocalExperts, 8, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 2, maxExpertsOfLayer),
		IntermediateSize: c.IntermediateSize,
		Normalize:        true,
		Names:            expertNames{router: "block_sparse_moe.gate.weight", folder: "block_sparse_moe.experts", gate: "w1.weight", up: "w3.weight", down: "w2.weight"},
	}
	c.addExperts(p, e, "num_local_experts", func(int) bool { return true })
}

// requireKeyValueHeads requires num_key_value_heads in architectures whose published defaults
// differ.
func requireKeyValueHeads(p *hfconfig.Checker, d hfconfig.Document) {
	if d.NumKeyValueHeads == nil { // absent and null mean different numbers
		p.Fail("num_key_value_heads is missing")
	}
}
