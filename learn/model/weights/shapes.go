package weights

import "fmt"

// InLayer is the name of a layer's parameter in checkpoints.
func InLayer(layer int, name string) string { return fmt.Sprintf("model.layers.%d.%s", layer, name) }

// OuterShapes gives the shapes of the parameters that belong to no layer, by their names in checkpoints: the
// embeddings, the last norm, and the projection to the vocabulary where it is not the embeddings once more.
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
