package recipe

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Size is a Llama that a run can start with.
type Size struct {
	Name                                         string
	Hidden, Intermediate, Layers, Heads, HeadDim int
	Reason                                       string
}

// sizes lists the models with random weights that a run can start with, from small to large.
var sizes = []Size{
	{"small", 256, 688, 3, 8, 32, "2.3 M parameters, as in configs/quickstart: two CPU cores train 4,150 tokens/s with it"},
	{"medium", 512, 1376, 7, 8, 64, "20.6 M parameters, as in proof/bench/peers/20m: two CPU cores train 1,270 tokens/s with it"},
}

// SizeOf returns the size with a name.
func SizeOf(name string) (Size, bool) {
	for _, s := range sizes {
		if s.Name == name {
			return s, true
		}
	}
	return Size{}, false
}

// queriesPerKey is the number of query heads that share a key and a value.
const queriesPerKey = 2

// Parameters returns the number of weights with a vocabulary.
func (s Size) Parameters(vocab int) uint64 {
	attention := s.Hidden * s.HeadDim * (2*s.Heads + 2*s.Heads/queriesPerKey)
	layer := attention + 3*s.Hidden*s.Intermediate + 2*s.Hidden
	return uint64(2*vocab*s.Hidden + s.Layers*layer + s.Hidden)
}

// Config returns the config.json of the model.
func (s Size) Config(vocab int) ([]byte, error) {
	text, err := json.MarshalIndent(map[string]any{
		"architectures":           []string{"LlamaForCausalLM"},
		"model_type":              "llama",
		"vocab_size":              vocab,
		"hidden_size":             s.Hidden,
		"intermediate_size":       s.Intermediate,
		"num_hidden_layers":       s.Layers,
		"num_attention_heads":     s.Heads,
		"num_key_value_heads":     s.Heads / queriesPerKey,
		"head_dim":                s.HeadDim,
		"hidden_act":              "silu",
		"max_position_embeddings": 1024,
		"rms_norm_eps":            1e-5,
		"rope_theta":              10000.0,
		"rope_scaling":            nil,
		"attention_bias":          false,
		"attention_dropout":       0.0,
		"mlp_bias":                false,
		"tie_word_embeddings":     false,
		"initializer_range":       0.02,
		"bos_token_id":            nil,
		"eos_token_id":            nil,
		"torch_dtype":             "float32",
		"use_cache":               true,
	}, "", "  ")
	return append(text, '\n'), err
}

// Names returns the names of all sizes, for messages.
func Names() string {
	var names []string
	for _, s := range sizes {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// String describes the size for people.
func (s Size) String() string { return fmt.Sprintf("%s: %s", s.Name, s.Reason) }
