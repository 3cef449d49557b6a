package llama

import (
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/weights"
)

// Init returns new weights, sorted by name: matrices drawn from a normal distribution of standard
// deviation InitializerRange, norms one, biases zero. The same config and seed give the same bits
// on every machine.
//
// Init calls made after each tensor with the number of its values.
func Init(c Config, seed uint64, made func(numbers int64)) []safetensors.Tensor {
	var out []safetensors.Tensor
	for name, shape := range shapes(c) {
		out = append(out, initial(c, seed, name, shape))
		made(int64(len(out[len(out)-1].Data) / 4))
	}
	slices.SortFunc(out, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// initial returns one new tensor.
func initial(c Config, seed uint64, name string, shape []int64) safetensors.Tensor {
	norm := len(shape) == 1 && !strings.HasSuffix(name, sinksName)
	switch {
	case strings.HasSuffix(name, "bias"), norm && c.Norms.OneMore:
		return weights.Zeros(name, shape...)
	case norm:
		return weights.Ones(name, shape...)
	}
	return weights.Normal(seed, name, c.InitializerRange, shape...)
}

// NumParameters returns the number of trainable values in a model of that config.
func NumParameters(c Config) int64 {
	return weights.Count(shapes(c), func(name string, _ []int64) bool { return !fixed(name) })
}

// NumHidden returns the number of trainable values in matrices between hidden layers.
func NumHidden(c Config) int64 {
	return weights.Count(shapes(c), func(name string, shape []int64) bool { return !fixed(name) && weights.Hidden(name, shape) })
}

// Largest returns the number of values in the largest trainable tensor.
func Largest(c Config) int64 {
	return weights.Largest(shapes(c), func(name string, _ []int64) bool { return !fixed(name) })
}

// fixed reports whether a tensor of a checkpoint is not trained.
func fixed(name string) bool { return strings.HasSuffix(name, correction) }

// shapes returns the shape of every tensor by its name in a checkpoint.
func shapes(c Config) map[string][]int64 {
	all := weights.OuterShapes(int64(c.VocabSize), int64(c.HiddenSize), c.TieWordEmbeddings)
	for i := range c.NumHiddenLayers {
		for _, shapes := range []map[string][]int64{attentionShapes(c), normShapes(c), biasShapes(c), feedForwardShapes(c, i)} {
			for name, shape := range shapes {
				all[weights.InLayer(i, name)] = shape
			}
		}
	}
	return all
}

// attentionShapes returns the shapes of the matrices of a layer's attention by their names.
func attentionShapes(c Config) map[string][]int64 {
	hidden, width := int64(c.HiddenSize), int64(c.HeadDim)
	queries, keys := int64(c.NumAttentionHeads)*width, int64(c.NumKeyValueHeads)*width
	all := map[string][]int64{
		"self_attn.q_proj.weight": {queries, hidden},
		"self_attn.k_proj.weight": {keys, hidden},
		"self_attn.v_proj.weight": {keys, hidden},
		"self_attn.o_proj.weight": {hidden, queries},
	}
	if c.Packed.Attention {
		pack(packedAttention, all, "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight")
	}
	return all
}

// feedForwardShapes returns the shapes of a layer's feed-forward matrices, or of its experts.
func feedForwardShapes(c Config, layer int) map[string][]int64 {
	if c.sparse(layer) {
		return expertShapes(c)
	}
	hidden, inner := int64(c.HiddenSize), int64(c.IntermediateSize)
	all := map[string][]int64{
		c.feed("gate_proj.weight"): {inner, hidden},
		c.feed("up_proj.weight"):   {inner, hidden},
		c.feed("down_proj.weight"): {hidden, inner},
	}
	if c.Packed.Feed {
		pack(packedFeed, all, "mlp.gate_proj.weight", "mlp.up_proj.weight")
	}
	return all
}
