package llama

// Activations is how many numbers training has in memory for each token of a micro batch, at least. Between the forward
// and the backward pass it keeps what goes into each half of a layer, queries, keys, values and what the heads mixed of
// them, and the two factors of the feed-forward layer; the backward pass has a layer's gradients of these besides. With
// recompute either halves of layers or whole layers keep what goes into them, and are computed again one by one.
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
	return numbers + largest + 2*width // and what goes into the head, with its gradient
}
