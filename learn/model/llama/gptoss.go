package llama

import (
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/model/weights"
)

// gptFields contains the fields of GPT-OSS.
type gptFields struct {
	Alpha *float64 `json:"swiglu_alpha"`
	Limit *float64 `json:"swiglu_limit"`
}

const sinksName = "self_attn.sinks"

// varyGPTOSS sets biases, a sink per head, windows in every second layer, and stacked experts with clamped gates.
func varyGPTOSS(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	requireKeyValueHeads(p, d)
	if d.MLPBias {
		p.Refuse("mlp_bias", true)
	}
	biased := flag(o.Biased, true)
	c.Biases = Biases{QueryKeyValue: biased, Output: biased}
	c.Sinks = true
	c.windows(p, o, o.SlidingWindow.or(p, 128), func(layer int) bool { return layer%2 == 0 })
	o.refuseRouting(p)
	e := Experts{
		Count:            p.Size("num_local_experts", sameCount(p, "num_local_experts", o.NumLocalExperts, "num_experts", o.NumExperts), 128, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 4, maxExpertsOfLayer),
		IntermediateSize: c.IntermediateSize,
		Late:             true,
		Names:            expertNames{router: "mlp.router.weight", routerBias: "mlp.router.bias", folder: "mlp.experts"},
		Stacked: &Stacked{Biases: true, Clamped: &Clamp{
			Limit: p.Number("swiglu_limit", o.Limit, 7, 1e-3, 1e6), Alpha: p.Number("swiglu_alpha", o.Alpha, 1.702, 1e-6, 1e6),
		}},
	}
	c.addExperts(p, e, "num_local_experts", func(int) bool { return true })
	if d.RopeScaling == nil && d.RopeParameters == nil {
		d.RopeScaling = gptRope()
	}
	c.Rope = rotary.Parse(p, d, c.MaxPositionEmbeddings, ropes...)
}

// gptRope returns the default rope.
func gptRope() *hfconfig.RopeScaling {
	return &hfconfig.RopeScaling{
		RopeType: new("yarn"), Factor: new(32.0), BetaFast: new(32.0), BetaSlow: new(1.0), Truncate: new(false), Original: new(4096.0),
	}
}

// refuseMXFP4 refuses experts in the 4-bit format of the published checkpoints.
func refuseMXFP4(tensors []safetensors.Tensor) error {
	for _, t := range tensors {
		if strings.HasSuffix(t.Name, "_proj_blocks") || strings.HasSuffix(t.Name, "_proj_scales") {
			return fmt.Errorf("%w: tensor %s is MXFP4: %s", weights.ErrMismatch, t.Name, hfconfig.DequantizeMXFP4)
		}
	}
	return nil
}
