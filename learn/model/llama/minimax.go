package llama

import (
	"slices"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
)

// minimaxFields contains fields of MiniMax-M2.
type minimaxFields struct {
	RotaryDim   *int    `json:"rotary_dim"`
	HeadNorm    *string `json:"qk_norm_type"`
	RoutingBias *bool   `json:"use_routing_bias"`
	SharedWidth int     `json:"shared_intermediate_size"`
	Kinds       []int   `json:"attn_type_list"` // 1 means attention to all tokens before, 0 linear attention
}

// varyMiniMax2 adds experts to every layer, which tokens choose by corrected sigmoids. One norm
// covers all heads of queries, a second all heads of keys, and a part of each head rotates.
func varyMiniMax2(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	d.RefuseBiases(p)
	noWindows(p, o)
	requireKeyValueHeads(p, d)
	o.refuseRouting(p)
	o.refuseScoring(p)
	switch m := o.minimaxFields; {
	case m.HeadNorm != nil && *m.HeadNorm != "per_layer":
		p.Refuse("qk_norm_type", *m.HeadNorm)
	case !flag(m.RoutingBias, true):
		p.Refuse("use_routing_bias", false)
	case m.SharedWidth != 0:
		p.Refuse("shared_intermediate_size", m.SharedWidth)
	case slices.ContainsFunc(m.Kinds, func(kind int) bool { return kind != 1 }):
		p.Fail("attn_type_list %v is not supported: want only 1, attention to all previous tokens", m.Kinds)
	case !flag(o.HeadNorms, true):
		p.Refuse("use_qk_norm", false)
	}
	c.Norms.All = true
	part := p.Size("rotary_dim", o.RotaryDim, c.HeadDim, c.HeadDim)
	c.partly(p, d, float64(part)/float64(c.HeadDim))
	c.Rope = rotary.ParsePart(p, d, c.MaxPositionEmbeddings, ropes...)
	c.addExperts(p, Experts{
		Count:            p.Size("num_local_experts", sameCount(p, "num_local_experts", o.NumLocalExperts, "num_experts", o.NumExperts), 256, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 8, maxExpertsOfLayer),
		IntermediateSize: c.IntermediateSize,
		Normalize:        true,
		Sigmoid:          true,
		Names: expertNames{
			router: "block_sparse_moe.gate.weight", correction: "block_sparse_moe." + correction, folder: "block_sparse_moe.experts",
			gate: "w1.weight", up: "w3.weight", down: "w2.weight",
		},
	}, "num_local_experts", func(int) bool { return true })
}
