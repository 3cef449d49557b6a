package llama

import (
	"encoding/json"
	"fmt"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// modelTypes are the architectures with the model_type of each.
var modelTypes = map[string]string{Architecture: "llama", ArchitectureMistral: "mistral", ArchitectureQwen2: "qwen2"}

// positions are the defaults of max_position_embeddings that differ from Llama's.
var positions = map[string]*int{ArchitectureMistral: new(4096 * 32), ArchitectureQwen2: new(32768)}

// defaultWindow is the sliding_window of a Mistral whose config.json has none.
const defaultWindow = 4096

// variant are the fields in which the architectures differ.
type variant struct {
	SlidingWindow    window   `json:"sliding_window"`
	UseSlidingWindow bool     `json:"use_sliding_window"`
	LayerTypes       []string `json:"layer_types"`
}

// window is a number of tokens, or null, which is not the same as nothing.
type window struct {
	written bool
	tokens  *int
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *window) UnmarshalJSON(data []byte) error {
	w.written = true
	if err := json.Unmarshal(data, &w.tokens); err != nil {
		return fmt.Errorf("sliding_window: want an integer or null, not %s", data)
	}
	return nil
}

// vary fills in in what the architectures differ, and refuses what none computes.
func (c *Config) vary(p *hfconfig.Checker, d hfconfig.Document, v variant) {
	for _, kind := range v.LayerTypes {
		if kind != "full_attention" {
			p.Fail("layer_types has %q, only full_attention is computed", kind)
		}
	}
	if c.Architecture == Architecture {
		c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias, FeedForward: d.MLPBias}
		return
	}
	d.RefuseBiases(p)
	if d.NumKeyValueHeads == nil { // absent and null are different numbers
		p.Fail("num_key_value_heads is missing")
	}
	if c.Architecture == ArchitectureQwen2 {
		c.Biases.QueryKeyValue = true
		if v.UseSlidingWindow {
			p.Refuse("use_sliding_window", true)
		}
		return
	}
	width := v.SlidingWindow.tokens
	if !v.SlidingWindow.written {
		width = new(defaultWindow)
	}
	if width != nil && *width < 1 {
		p.Fail("sliding_window is %d, want at least 1, or null for none", *width)
	}
	if width != nil && *width < c.MaxPositionEmbeddings {
		p.Fail("sliding_window %d is less than max_position_embeddings %d, and windows are not computed: texts of up to %d tokens are the same without, so write max_position_embeddings %d",
			*width, c.MaxPositionEmbeddings, *width, *width)
	}
}
