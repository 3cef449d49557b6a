package deepseek

// Activations is how many numbers training has in memory for each token of a micro batch, at least: between the forward
// and the backward pass what goes into each half of a layer, queries, keys, values, what they are made of, what the
// heads mixed of them, and the two factors of the feed-forward layers that the token goes through; and in the backward
// pass a layer's gradients of these. With recompute it keeps what goes into each layer, and all of one at a time.
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
	return numbers + largest + int64(2*c.HiddenSize) // and what goes into the head, with its gradient
}
