package llama

import (
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
)

// glmFields contains fields of GLM, most of them for its experts.
type glmFields struct {
	FirstDense *int     `json:"first_k_dense_replace"`
	Routed     *int     `json:"n_routed_experts"`
	Shared     *int     `json:"n_shared_experts"`
	Groups     *int     `json:"n_group"`
	TopGroups  *int     `json:"topk_group"`
	Scale      *float64 `json:"routed_scaling_factor"`
	NumNextN   *int     `json:"num_nextn_predict_layers"`
}

// glm reads the fields that all GLM models have. By default half of each head rotates. biases is
// the default of attention_bias, for queries, keys and values.
func (c *Config) glm(p *hfconfig.Checker, d hfconfig.Document, o own, biases bool) {
	noWindows(p, o)
	requireKeyValueHeads(p, d)
	if d.MLPBias {
		p.Refuse("mlp_bias", true)
	}
	c.Biases.QueryKeyValue = flag(o.Biased, biases)
	c.partly(p, d, 0.5)
	c.Rope = rotary.ParsePart(p, d, c.MaxPositionEmbeddings, ropes...)
}

// varyGLM rotates neighbouring elements of a head together, and packs gate and up into one matrix.
func varyGLM(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.glm(p, d, o, true)
	c.Interleaved = true
	c.Packed.Feed = true
}

// varyGLM4 adds norms after attention and feed-forward layer to GLM.
func varyGLM4(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	varyGLM(c, p, d, o)
	c.Norms = Norms{After: true, Halves: true}
}

// varyGLM4MoE adds experts to the upper layers, which tokens choose as in DeepSeek-V3.
func varyGLM4MoE(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.glm(p, d, o, false)
	o.refuseRouting(p)
	o.refuseScoring(p)
	c.Norms.Heads = flag(o.HeadNorms, false)
	c.NumNextN = p.Count("num_nextn_predict_layers", o.NumNextN, 1, 1<<6)
	e := Experts{
		Count:            p.Size("n_routed_experts", sameCount(p, "n_routed_experts", o.Routed, "num_local_experts", o.NumLocalExperts), 128, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 8, maxExpertsOfLayer),
		IntermediateSize: p.Size("moe_intermediate_size", o.ExpertSize, 1408, 1<<20),
		Normalize:        flag(o.Normalize, true),
		Sigmoid:          true,
		Groups:           p.Size("n_group", o.Groups, 1, 1<<10),
		TopGroups:        p.Size("topk_group", o.TopGroups, 1, 1<<10),
		Scale:            p.Number("routed_scaling_factor", o.Scale, 1, 1e-6, 1e6),
		Names:            qwenNames,
	}
	e.Shared = e.IntermediateSize * p.Size("n_shared_experts", o.Shared, 1, 1<<10)
	e.Names.shared, e.Names.correction = "mlp.shared_experts", "mlp.gate."+correction
	first := p.Count("first_k_dense_replace", o.FirstDense, 1, 1<<12)
	c.addExperts(p, e, "n_routed_experts", func(layer int) bool { return layer >= first })
	e.router().Check(p)
}
