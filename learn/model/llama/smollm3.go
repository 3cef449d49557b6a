package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// smolFields contains the fields of SmolLM 3.
type smolFields struct {
	Turned []int `json:"no_rope_layers"` // 1: queries and keys of the layer rotate; 0: they do not
	Still  *int  `json:"no_rope_layer_interval"`
}

// varySmolLM3 removes positions from some layers, which may have windows.
func varySmolLM3(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	requireKeyValueHeads(p, d)
	c.Biases = Biases{QueryKeyValue: d.AttentionBias, Output: d.AttentionBias, FeedForward: d.MLPBias}
	every := p.Size("no_rope_layer_interval", o.Still, 4, 1<<12)
	if o.Turned != nil && len(o.Turned) < c.NumHiddenLayers {
		p.Fail("no_rope_layers has %d entries for num_hidden_layers %d", len(o.Turned), c.NumHiddenLayers)
		return
	}
	still := func(layer int) bool {
		if o.Turned != nil {
			return o.Turned[layer] == 0
		}
		return (layer+1)%every == 0
	}
	if o.UseSlidingWindow {
		tokens := o.SlidingWindow.or(p, 0)
		c.windows(p, o, tokens, func(layer int) bool { return tokens > 0 && still(layer) })
	} else {
		noWindows(p, o)
	}
	if c.Layers == nil {
		c.Layers = make([]Layer, c.NumHiddenLayers)
	}
	for i := range c.Layers {
		c.Layers[i].Still = still(i)
	}
}
