// Package hfconfig reads a Hugging Face config.json: what all architectures have in common, and
// the ways to check and refuse a field. An architecture's own reader lists what it has beyond that:
//
//	d, err := hfconfig.Read(config, &own, map[string][]string{"LlamaForCausalLM": {"llama"}})
//	p := hfconfig.Checker{}
//	base := d.Base(&p)                                   // the sizes that every model has
//	rope := d.Rope(&p, 1, "default", "linear", "llama3") // the rotary positions
//	heads := p.Size("num_key_value_heads", …)            // its own fields
//	return p.Err()
//
// Read refuses what would give another network than any that is computed here. A Checker holds
// the first complaint, so that a reader is a list of its fields.
package hfconfig
