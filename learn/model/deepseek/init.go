package deepseek

import (
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/weights"
)

// correctionName is the only tensor of a layer that is not trained.
const correctionName = "mlp.gate.e_score_correction_bias"

// Init returns new weights, sorted by name: matrices drawn from a normal distribution of standard
// deviation InitializerRange, norms one, corrections of scores zero. The same config and seed give
// the same bits on every machine.
//
// Init calls made after each tensor with the number of its values.
func Init(c Config, seed uint64, made func(numbers int64)) []safetensors.Tensor {
	var out []safetensors.Tensor
	add := func(name string, shape []int64) {
		switch {
		case strings.HasSuffix(name, correctionName):
			out = append(out, weights.Zeros(name, shape...))
		case len(shape) == 1:
			out = append(out, weights.Ones(name, shape...))
		default:
			out = append(out, weights.Normal(seed, name, c.InitializerRange, shape...))
		}
		made(int64(len(out[len(out)-1].Data) / 4))
	}
	for name, shape := range weights.OuterShapes(int64(c.VocabSize), int64(c.HiddenSize), c.TieWordEmbeddings) {
		add(name, shape)
	}
	for i := range c.NumHiddenLayers {
		for name, shape := range layerShapes(c, i) {
			add(weights.InLayer(i, name), shape)
		}
		if !c.sparse(i) {
			continue
		}
		for expert := range c.NumExperts {
			for name, shape := range expertShapes(c) {
				add(expertName(i, expert, name), shape)
			}
		}
	}
	slices.SortFunc(out, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// NumParameters returns the number of trainable values in a model of that config.
func NumParameters(c Config) int64 {
	return number(c, func(name string, _ []int64) bool { return name != correctionName })
}

// NumHidden returns the number of trainable values in matrices between hidden layers.
func NumHidden(c Config) int64 {
	return number(c, func(name string, shape []int64) bool { return name != correctionName && weights.Hidden(name, shape) })
}

// number returns the number of values in tensors for which which returns true. The names of tensors in layers have no
// prefix.
func number(c Config, which func(name string, shape []int64) bool) int64 {
	total := weights.Count(weights.OuterShapes(int64(c.VocabSize), int64(c.HiddenSize), c.TieWordEmbeddings), which)
	for i := range c.NumHiddenLayers {
		total += weights.Count(layerShapes(c, i), which)
		if c.sparse(i) {
			total += int64(c.NumExperts) * weights.Count(expertShapes(c), which)
		}
	}
	return total
}

// Largest returns the number of values in the largest trainable tensor.
func Largest(c Config) int64 {
	trained := func(name string, _ []int64) bool { return name != correctionName }
	largest := weights.Largest(weights.OuterShapes(int64(c.VocabSize), int64(c.HiddenSize), c.TieWordEmbeddings), trained)
	for i := range c.NumHiddenLayers {
		largest = max(largest, weights.Largest(layerShapes(c, i), trained))
		if c.sparse(i) {
			largest = max(largest, weights.Largest(expertShapes(c), trained))
		}
	}
	return largest
}

func expertName(layer, expert int, name string) string {
	return fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s", layer, expert, name)
}

// layerShapes returns the shapes of a layer without its experts.
func layerShapes(c Config, layer int) map[string][]int64 {
	hidden, heads := int64(c.HiddenSize), int64(c.NumAttentionHeads)
	nope, rope, value := int64(c.QKNopeHeadDim), int64(c.QKRopeHeadDim), int64(c.VHeadDim)
	rank := int64(c.KVLoraRank)
	all := map[string][]int64{
		"input_layernorm.weight":              {hidden},
		"self_attn.kv_a_proj_with_mqa.weight": {rank + rope, hidden},
		"self_attn.kv_a_layernorm.weight":     {rank},
		"self_attn.kv_b_proj.weight":          {heads * (nope + value), rank},
		"self_attn.o_proj.weight":             {hidden, heads * value},
		"post_attention_layernorm.weight":     {hidden},
	}
	if queries := int64(c.QLoraRank); queries > 0 {
		all["self_attn.q_a_proj.weight"] = []int64{queries, hidden}
		all["self_attn.q_a_layernorm.weight"] = []int64{queries}
		all["self_attn.q_b_proj.weight"] = []int64{heads * (nope + rope), queries}
	} else {
		all["self_attn.q_proj.weight"] = []int64{heads * (nope + rope), hidden}
	}
	feedForward := func(prefix string, inner int64) {
		all[prefix+"gate_proj.weight"] = []int64{inner, hidden}
		all[prefix+"up_proj.weight"] = []int64{inner, hidden}
		all[prefix+"down_proj.weight"] = []int64{hidden, inner}
	}
	if !c.sparse(layer) {
		feedForward("mlp.", int64(c.IntermediateSize))
		return all
	}
	all["mlp.gate.weight"] = []int64{int64(c.NumExperts), hidden}
	if c.v3() {
		all[correctionName] = []int64{int64(c.NumExperts)}
	}
	if c.Experts.Shared > 0 {
		feedForward("mlp.shared_experts.", int64(c.Experts.Shared)*int64(c.Experts.IntermediateSize))
	}
	return all
}

// expertShapes returns the shapes of one expert.
func expertShapes(c Config) map[string][]int64 {
	hidden, inner := int64(c.HiddenSize), int64(c.Experts.IntermediateSize)
	return map[string][]int64{
		"gate_proj.weight": {inner, hidden},
		"up_proj.weight":   {inner, hidden},
		"down_proj.weight": {hidden, inner},
	}
}
