package deepseek

// Activations returns the minimum number of values that training keeps in memory for each token of
// a micro batch. Between the forward and the backward pass these are the inputs of each layer's
// attention and feed-forward blocks, the queries, keys and values, their compressed forms, the
// output of the heads, and the two factors of the feed-forward layers that the token goes through.
// The backward pass adds the gradients of these values in one layer. With recompute, training keeps
// the input of each layer, and the other values of one layer at a time.
func Activations(c Config, recompute bool) (numbers int64) {
	heads := c.NumAttentionHeads * (2*(c.QKNopeHeadDim+c.QKRopeHeadDim) + 2*c.VHeadDim)
	attention := heads + c.QLoraRank + c.KVLoraRank + c.QKRopeHeadDim
	largest := int64(0)
	for i := range c.NumHiddenLayers {
		inner := c.IntermediateSize
		if c.sparse(i) {
			inner = (c.Experts.PerToken + c.Experts.Shared) * c.Experts.IntermediateSize
		}
		layer := int64(2*c.HiddenSize + attention + 2*inner)
		largest = max(largest, layer)
		if recompute {
			layer = int64(c.HiddenSize)
		}
		numbers += layer
	}
	if recompute {
		largest *= 2
	}
	return numbers + largest + int64(2*c.HiddenSize) // plus the input of the head, with its gradient
}
