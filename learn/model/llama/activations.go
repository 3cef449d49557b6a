package llama

// Activations returns the minimum number of values that training keeps in memory for each token of
// a micro batch. Between the forward and the backward pass these are the input of each sublayer
// (attention or feed-forward), the queries, keys and values, the output of the heads, and the two
// factors of the feed-forward sublayer. The backward pass adds the gradients of these values in one
// layer. With recompute, training keeps only the inputs of sublayers or of whole layers, and
// recomputes one sublayer or layer at a time.
func Activations(c Config, recompute bool) (numbers int64) {
	halves := c.notLlama() == ""
	width, heads, values := int64(c.HiddenSize), int64(c.NumAttentionHeads*c.HeadDim), int64(c.NumKeyValueHeads*c.HeadDim)
	largest := int64(0)
	for i := range c.NumHiddenLayers {
		inner := int64(c.IntermediateSize)
		if c.sparse(i) {
			inner = int64(c.Experts.PerToken*c.Experts.IntermediateSize + c.Experts.Shared)
		}
		layer := 2*width + 2*heads + 2*values + 2*inner
		largest = max(largest, layer)
		switch {
		case !recompute:
			numbers += layer
		case halves:
			numbers += 2 * width
		default:
			numbers += width
		}
	}
	if recompute {
		largest *= 2
	}
	return numbers + largest + 2*width // plus the input of the head, with its gradient
}
