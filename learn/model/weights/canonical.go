package weights

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
)

// buffers are names of tensors that programs saved in checkpoints although they follow from the
// config: tables of rotary positions, masks, and numbers of positions. They are at the top level,
// in the model, in a layer or in its attention.
var buffers = []string{
	"rotary_emb.inv_freq", "rotary_emb.original_inv_freq", "rotary_emb.long_inv_freq", "rotary_emb.short_inv_freq",
	"rotary_emb.cos_cached", "rotary_emb.sin_cached", "rotary_emb_local.inv_freq", "rotary_emb_local.original_inv_freq",
	"rope.freqs", "freqs_cis", "masked_bias", "causal_mask", "position_ids", "embeddings.position_ids",
}

// WithoutBuffers removes the buffers of a model with a number of layers. Unknown tensors stay, so
// that the model refuses them.
func WithoutBuffers(tensors []safetensors.Tensor, layers int) []safetensors.Tensor {
	return slices.DeleteFunc(slices.Clone(tensors), func(t safetensors.Tensor) bool { return isBuffer(t, layers) })
}

func isBuffer(t safetensors.Tensor, layers int) bool {
	name, attention := strings.TrimPrefix(t.Name, "model."), false
	if rest, found := strings.CutPrefix(t.Name, "model.layers."); found {
		number, inner, _ := strings.Cut(rest, ".")
		layer, err := strconv.Atoi(number)
		if err != nil || layer < 0 || layer >= layers || strconv.Itoa(layer) != number {
			return false
		}
		name = inner
		for _, part := range []string{"self_attn.", "attention.", "attn."} {
			if within, found := strings.CutPrefix(inner, part); found {
				name, attention = within, true
			}
		}
	}
	// GPT-2 and similar models call the causal mask "bias".
	mask := attention && name == "bias" && len(t.Shape) == 4 && t.Shape[0] == 1 && t.Shape[1] == 1 && t.Shape[2] == t.Shape[3]
	return mask || slices.Contains(buffers, name)
}

// WithoutLayers removes the tensors of count layers, starting at number first. Layers that predict
// further tokens follow the last layer of a model.
func WithoutLayers(tensors []safetensors.Tensor, first, count int) []safetensors.Tensor {
	return slices.DeleteFunc(slices.Clone(tensors), func(t safetensors.Tensor) bool {
		layer, _, found := CutLayer(t.Name)
		return found && layer >= first && layer < first+count
	})
}

// WithoutTied removes tensor name, if present: a tied weight that a checkpoint stores twice. It
// must equal the tensor other.
func WithoutTied(tensors []safetensors.Tensor, name, other string) ([]safetensors.Tensor, error) {
	find := func(name string) int {
		return slices.IndexFunc(tensors, func(t safetensors.Tensor) bool { return t.Name == name })
	}
	tied, kept := find(name), find(other)
	if tied < 0 {
		return tensors, nil
	}
	if kept < 0 || !same(tensors[tied], tensors[kept]) {
		return nil, fmt.Errorf("%w: tensor %s differs from %s although the two are tied", ErrMismatch, name, other)
	}
	return slices.Concat(tensors[:tied], tensors[tied+1:]), nil
}

func same(a, b safetensors.Tensor) bool {
	return a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
}
