package llama

import (
	"slices"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// qwenFields contains fields of Qwen 2 with experts.
type qwenFields struct {
	QKVBias    *bool `json:"qkv_bias"`
	SharedSize *int  `json:"shared_expert_intermediate_size"`
}

// varyQwen2MoE adds experts to most layers of Qwen 2. Every token also uses a shared expert, which
// a gate scales.
func varyQwen2MoE(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	d.RefuseBiases(p)
	requireKeyValueHeads(p, d)
	noWindows(p, o)
	if o.UseSlidingWindow {
		p.Refuse("use_sliding_window", true)
	}
	o.refuseRouting(p)
	c.Biases.QueryKeyValue = flag(o.QKVBias, true)
	e := Experts{
		Count:            p.Size("num_experts", o.NumExperts, 60, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 4, maxExpertsOfLayer),
		IntermediateSize: p.Size("moe_intermediate_size", o.ExpertSize, 1408, 1<<20),
		Normalize:        flag(o.Normalize, false),
		Shared:           p.Size("shared_expert_intermediate_size", o.SharedSize, 5632, 1<<20),
		Names:            qwenNames,
	}
	e.Names.shared, e.Names.sharedGate = "mlp.shared_expert", "mlp.shared_expert_gate.weight"
	step := p.Size("decoder_sparse_step", o.SparseStep, 1, 1<<12)
	c.addExperts(p, e, "num_experts", func(layer int) bool { return (layer+1)%step == 0 && !slices.Contains(o.DenseLayers, layer) })
}
