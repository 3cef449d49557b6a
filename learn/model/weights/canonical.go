package weights

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/safetensors"
)

// Without drops the tensors of these names, if they are there: what published checkpoints
// hold and a model does not need.
func Without(tensors []safetensors.Tensor, names ...string) []safetensors.Tensor {
	dropped := make(map[string]bool, len(names))
	for _, name := range names {
		dropped[name] = true
	}
	return slices.DeleteFunc(slices.Clone(tensors), func(t safetensors.Tensor) bool { return dropped[t.Name] })
}

// WithoutTables drops the tables of rotary positions that older programs saved in checkpoints. They follow
// from the config.
func WithoutTables(tensors []safetensors.Tensor, layers int) []safetensors.Tensor {
	names := []string{"model.rotary_emb.inv_freq"}
	for i := range layers {
		for _, table := range []string{"inv_freq", "cos_cached", "sin_cached"} {
			names = append(names, InLayer(i, "self_attn.rotary_emb."+table))
		}
	}
	return Without(tensors, names...)
}

// WithoutLayers drops the tensors of count layers, starting at number first. Layers that predict further tokens
// follow the last layer of a model.
func WithoutLayers(tensors []safetensors.Tensor, first, count int) []safetensors.Tensor {
	return slices.DeleteFunc(slices.Clone(tensors), func(t safetensors.Tensor) bool {
		layer, _, found := CutLayer(t.Name)
		return found && layer >= first && layer < first+count
	})
}

// WithoutTied drops tensor name, if it is there: a tied weight that a checkpoint stores
// twice. It must equal the tensor other.
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
