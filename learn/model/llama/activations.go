package llama

// Activations returns the minimum number of values that training keeps in memory for each token of
// a micro batch. Between the forward and the backward pass these are the input of each sublayer
// (attention or feed-forward), the queries, keys and values, the output of the heads, and the two
// factors of the feed-forward sublayer. The backward pass adds the gradients of these values in one
// layer. With recompute, training keeps only the inputs of sublayers or of whole layers, and
// recomputes one sublayer or layer at a time.
func Activations(c Config, recompute bool) (numbers int64) {
	halves := c.notLlama() == ""
	width, largest := int64(c.HiddenSize), LargestLayer(c)
	for i := range c.NumHiddenLayers {
		switch {
		case !recompute:
			numbers += c.kept(i)
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

// LargestLayer returns the number of values that a layer keeps in memory for each token, for the layer with the most.
func LargestLayer(c Config) (largest int64) {
	for i := range c.NumHiddenLayers {
		largest = max(largest, c.kept(i))
	}
	return largest
}

// kept returns the number of values that layer i keeps in memory for each token without recompute.
func (c Config) kept(i int) int64 {
	inner := int64(c.IntermediateSize)
	if c.sparse(i) {
		inner = int64(c.Experts.PerToken*c.Experts.IntermediateSize + c.Experts.Shared)
	}
	return 2*int64(c.HiddenSize) + 2*int64(c.NumAttentionHeads*c.HeadDim) + 2*int64(c.NumKeyValueHeads*c.HeadDim) + 2*inner
}
