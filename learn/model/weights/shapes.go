package weights

import (
	"fmt"
	"strconv"
	"strings"
)

// InLayer returns the name of a layer's parameter in checkpoints.
func InLayer(layer int, name string) string { return fmt.Sprintf("model.layers.%d.%s", layer, name) }

// CutLayer splits the name of a layer's parameter into the layer's number and the rest.
func CutLayer(full string) (layer int, name string, found bool) {
	rest, found := strings.CutPrefix(full, "model.layers.")
	if !found {
		return 0, "", false
	}
	number, name, found := strings.Cut(rest, ".")
	layer, err := strconv.Atoi(number)
	return layer, name, found && err == nil
}

// OuterShapes returns the shapes of the parameters outside the layers, by their names in
// checkpoints: the embeddings, the last norm, and the projection to the vocabulary if it is not
// tied to the embeddings.
func OuterShapes(vocabulary, hidden int64, tied bool) map[string][]int64 {
	all := map[string][]int64{
		"model.embed_tokens.weight": {vocabulary, hidden},
		"model.norm.weight":         {hidden},
	}
	if !tied {
		all["lm_head.weight"] = []int64{vocabulary, hidden}
	}
	return all
}

// Hidden reports whether a trained tensor is a matrix between hidden layers, or several such matrices stacked.
// Embeddings, the output layer and stacked biases of experts are not.
func Hidden(name string, shape []int64) bool {
	return len(shape) >= 2 && !strings.HasSuffix(name, "_bias") && name != "model.embed_tokens.weight" && name != "lm_head.weight"
}

// Count returns the number of values in tensors, by their names, for which which returns true.
func Count(shapes map[string][]int64, which func(name string, shape []int64) bool) (total int64) {
	for name, shape := range shapes {
		if !which(name, shape) {
			continue
		}
		total += elements(shape)
	}
	return total
}

// Largest returns the number of values in the largest tensor, by their names, for which which returns true.
func Largest(shapes map[string][]int64, which func(name string, shape []int64) bool) (largest int64) {
	for name, shape := range shapes {
		if which(name, shape) {
			largest = max(largest, elements(shape))
		}
	}
	return largest
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, size := range shape {
		n *= size
	}
	return n
}
