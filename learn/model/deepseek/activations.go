package deepseek

// Activations returns the minimum number of values that training keeps in memory for each token of
// a micro batch. Between the forward and the backward pass these are the inputs of each layer's
// attention and feed-forward blocks, the queries, keys and values, their compressed forms, the
// output of the heads, and the two factors of the feed-forward layers that the token goes through.
// The backward pass adds the gradients of these values in one layer. With recompute, training keeps
// the input of each layer, and the other values of one layer at a time.
func Activations(c Config, recompute bool) (numbers int64) {
	largest := LargestLayer(c)
	for i := range c.NumHiddenLayers {
		if recompute {
			numbers += int64(c.HiddenSize)
		} else {
			numbers += c.kept(i)
		}
	}
	if recompute {
		largest *= 2
	}
	return numbers + largest + int64(2*c.HiddenSize) // plus the input of the head, with its gradient
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
	inner := c.IntermediateSize
	if c.sparse(i) {
		inner = (c.Experts.PerToken + c.Experts.Shared) * c.Experts.IntermediateSize
	}
	heads := c.NumAttentionHeads * (2*(c.QKNopeHeadDim+c.QKRopeHeadDim) + 2*c.VHeadDim)
	attention := heads + c.QLoraRank + c.KVLoraRank + c.QKRopeHeadDim
	return int64(2*c.HiddenSize + attention + 2*inner)
}
