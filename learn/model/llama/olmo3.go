package llama

import "github.com/psyche-go/psyche/learn/model/hfconfig"

// olmo3Theta is the default of rope_theta.
const olmo3Theta = 5e5

// varyOLMo3 adds windows to three of four layers of OLMo 2. rope_scaling does not apply to these
// layers.
func varyOLMo3(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	c.olmo2(p, d)
	tokens := o.SlidingWindow.or(p, defaultWindow)
	c.windows(p, o, tokens, func(layer int) bool { return (layer+1)%4 != 0 })
	localTheta := olmo3Theta
	if *d.RopeTheta != localTheta && c.Layers != nil && (o.Ropes.Local == nil || o.Ropes.Local.RopeTheta == nil) {
		p.Fail("transformers 4 and 5 use rope_theta %v differently in layers with windows: set rope_theta in full_attention and sliding_attention of rope_parameters", *d.RopeTheta)
	}
	c.layerRopes(p, d, o, &localTheta)
}
