// Package hfconfig reads the parts of a Hugging Face config.json that all architectures share, and
// checks and refuses fields. An architecture's own reader lists its further fields:
//
//	d, err := hfconfig.Read(config, &own, map[string][]string{"LlamaForCausalLM": {"llama"}})
//	p := hfconfig.Checker{}
//	base := d.Base(&p)                                   // the sizes that every model has
//	rope := d.Rope(&p, 1, "default", "linear", "llama3") // the rotary positions
//	heads := p.Size("num_key_value_heads", …)            // its own fields
//	return p.Err()
//
// Read refuses settings of networks that this project does not compute. A Checker keeps the first
// error, so a reader is a plain list of its fields.
package hfconfig
