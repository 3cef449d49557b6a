package llama

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/torch"
)

// llama4Fields contains the fields of Llama 4.
type llama4Fields struct {
	DenseSize   *int     `json:"intermediate_size_mlp"`
	MoELayers   *[]int   `json:"moe_layers"`
	MoEStep     *int     `json:"interleave_moe_layer_step"`
	ChunkSize   chunk    `json:"attention_chunk_size"`
	Temperature tempered `json:"attn_temperature_tuning"`
	FloorScale  *float64 `json:"floor_scale"`
	AttnScale   *float64 `json:"attn_scale"`
}

// chunk is a number of tokens, or null for no chunks. Absent, it is 8192.
type chunk struct{ window }

// UnmarshalJSON implements json.Unmarshaler.
func (c *chunk) UnmarshalJSON(data []byte) error {
	c.written = true
	if err := json.Unmarshal(data, &c.tokens); err != nil {
		return fmt.Errorf("attention_chunk_size: want an integer or null, not %s", data)
	}
	return nil
}

// tempered is true or false, or a number as in older files, in which 0 means false. Absent, it is
// true.
type tempered struct{ off bool }

// UnmarshalJSON implements json.Unmarshaler.
func (t *tempered) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	switch value := value.(type) {
	case bool:
		t.off = !value
	case float64:
		t.off = value == 0
	default:
		return fmt.Errorf("attn_temperature_tuning: want true or false, not %s", data)
	}
	return nil
}

// Temper scales queries of layers without positions: at position p by 1 + Scale·ln(1 + ⌊(p+1)/Floor⌋). The zero value
// leaves them unchanged.
type Temper struct{ Floor, Scale float64 }

// varyLlama4 sets experts with a shared expert, rotation of neighbouring pairs, head norms without
// weights, and layers with chunks or without positions.
func varyLlama4(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	requireKeyValueHeads(p, d)
	if d.MLPBias {
		p.Refuse("mlp_bias", true)
	}
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias}
	c.Norms.Unit = flag(o.HeadNorms, true)
	c.Interleaved = true
	if !o.Temperature.off {
		c.Temper = Temper{Floor: p.Number("floor_scale", o.FloorScale, 8192, 1, 1e9), Scale: p.Number("attn_scale", o.AttnScale, 0.1, 0, 1e3)}
	}
	c.llama4Layers(p, o)
	c.llama4Experts(p, o)
}

// llama4Layers sets the layers with positions and the layers with chunks.
func (c *Config) llama4Layers(p *hfconfig.Checker, o own) {
	size, every := o.ChunkSize.size(p, "attention_chunk_size", 8192), p.Size("no_rope_layer_interval", o.Still, 4, 1<<12)
	switch n := c.NumHiddenLayers; {
	case len(o.Turned) > 0 && len(o.Turned) < n:
		p.Fail("no_rope_layers has %d entries for num_hidden_layers %d", len(o.Turned), n)
		return
	case o.LayerTypes != nil && len(o.LayerTypes) != n:
		p.Fail("layer_types has %d entries for num_hidden_layers %d", len(o.LayerTypes), n)
		return
	}
	c.Layers = make([]Layer, c.NumHiddenLayers)
	for i := range c.Layers {
		still := (i+1)%every == 0
		if len(o.Turned) > 0 {
			still = o.Turned[i] == 0
		}
		chunked := !still && size > 0
		if o.LayerTypes != nil {
			chunked = o.LayerTypes[i] == "chunked_attention"
			if !chunked && o.LayerTypes[i] != "full_attention" {
				p.Fail("layer_types has %q, want full_attention or chunked_attention", o.LayerTypes[i])
			}
		}
		c.Layers[i].Still = still
		if chunked && size == 0 {
			p.Fail("layer_types has chunked_attention, but attention_chunk_size is missing")
		} else if chunked {
			c.Layers[i].Chunk = size
		}
	}
}

// llama4Experts sets experts of width intermediate_size and dense layers of width intermediate_size_mlp.
func (c *Config) llama4Experts(p *hfconfig.Checker, o own) {
	o.refuseRouting(p)
	c.FeedFolder = "feed_forward"
	e := Experts{
		Count:            p.Size("num_local_experts", o.NumLocalExperts, 16, maxExpertsOfLayer),
		PerToken:         p.Size("num_experts_per_tok", o.PerToken, 1, maxExpertsOfLayer),
		IntermediateSize: c.IntermediateSize,
		Sigmoid:          true,
		Late:             true,
		Shared:           c.IntermediateSize,
		Names: expertNames{
			router: "feed_forward.router.weight", folder: "feed_forward.experts", shared: "feed_forward.shared_expert",
			gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight",
		},
		Stacked: &Stacked{ScaleInput: true},
	}
	c.IntermediateSize = p.Size("intermediate_size_mlp", o.DenseSize, 16384, 1<<20)
	step := p.Size("interleave_moe_layer_step", o.MoEStep, 1, 1<<12)
	c.addExperts(p, e, "num_local_experts", func(layer int) bool {
		if o.MoELayers != nil {
			return slices.Contains(*o.MoELayers, layer)
		}
		return (layer+1)%step == 0
	})
}

// at returns the factors [count] of queries, starting at position first.
func (t Temper) at(s *torch.Scope, first, count int64) *torch.Tensor {
	factors := make([]float32, count)
	for i := range factors {
		floors := math.Floor(float64(first+int64(i)+1) / t.Floor)
		factors[i] = float32(math.Log1p(floors)*t.Scale + 1)
	}
	return s.FromFloat32s(factors, count)
}
