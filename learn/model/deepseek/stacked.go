package deepseek

import (
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model/weights"
)

// Names of the tensors with all experts of a layer: [E,2·inner,hidden], gate above up, and
// [E,hidden,inner].
const (
	stackedGateUp = "mlp.experts.gate_up_proj"
	stackedDown   = "mlp.experts.down_proj"
)

// canonical gives the tensors the names of published checkpoints, with separate experts. It omits
// the layers that predict further tokens, buffers, and a tied head. It copies nothing. Tensors with
// another shape stay unchanged, and a later check refuses them.
func canonical(c Config, tensors []safetensors.Tensor) ([]safetensors.Tensor, error) {
	tensors = weights.WithoutLayers(weights.WithoutBuffers(tensors, c.NumHiddenLayers), c.NumHiddenLayers, c.NumNextN)
	tensors = unstacked(c, tensors)
	if !c.TieWordEmbeddings {
		return tensors, nil
	}
	return weights.WithoutTied(tensors, "lm_head.weight", "model.embed_tokens.weight")
}

func unstacked(c Config, tensors []safetensors.Tensor) []safetensors.Tensor {
	out := make([]safetensors.Tensor, 0, len(tensors))
	for _, t := range tensors {
		if layer, name, found := weights.CutLayer(t.Name); found && (name == stackedGateUp || name == stackedDown) {
			out = append(out, unstack(c, layer, t)...)
		} else {
			out = append(out, t)
		}
	}
	return out
}

func unstack(c Config, layer int, t safetensors.Tensor) []safetensors.Tensor {
	experts, hidden, inner := int64(c.NumExperts), int64(c.HiddenSize), int64(c.Experts.IntermediateSize)
	names, shape := []string{"gate_proj.weight", "up_proj.weight"}, []int64{inner, hidden}
	stacked := []int64{experts, 2 * inner, hidden}
	if strings.HasSuffix(t.Name, stackedDown) {
		names, shape = []string{"down_proj.weight"}, []int64{hidden, inner}
		stacked = []int64{experts, hidden, inner}
	}
	if experts == 0 || !slices.Equal(t.Shape, stacked) || t.Validate() != nil {
		return []safetensors.Tensor{t}
	}
	var out []safetensors.Tensor
	size := len(t.Data) / (c.NumExperts * len(names))
	for expert := range c.NumExperts {
		for i, name := range names {
			first := (expert*len(names) + i) * size
			out = append(out, safetensors.Tensor{
				Name: expertName(layer, expert, name), DType: t.DType, Shape: shape, Data: t.Data[first : first+size : first+size],
			})
		}
	}
	return out
}
