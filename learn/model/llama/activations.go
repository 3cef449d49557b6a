package llama

// Activations is how many numbers training has in memory for each token of a micro batch, at least. Between the forward
// and the backward pass it keeps what goes into each half of a layer, queries, keys, values and what the heads mixed of
// them, and the two factors of the feed-forward layer; the backward pass has a layer's gradients of these besides. With
// recompute the halves that libtorch's side computes in one piece keep what goes into them, and are computed again one by one.
func Activations(c Config, recompute bool) (numbers int64) {
	width, heads, values := int64(c.HiddenSize), int64(c.NumAttentionHeads*c.HeadDim), int64(c.NumKeyValueHeads*c.HeadDim)
	largest := int64(0)
	for i := range c.NumHiddenLayers {
		b, inner := block{layer: c.layer(i)}, int64(c.IntermediateSize)
		b.fuse(c)
		if c.sparse(i) {
			b.fusedFeed, inner = false, int64(c.Experts.PerToken*c.Experts.IntermediateSize)
		}
		attention, feed, again := 2*heads+2*values, 2*inner, int64(0)
		largest = max(largest, 2*width+attention+feed)
		if recompute && b.fusedAttention {
			again += attention
		}
		if recompute && b.fusedFeed {
			again += feed
		}
		numbers += 2*width + attention + feed - again
	}
	if recompute {
		largest *= 2
	}
	return numbers + largest + 2*width // and what goes into the head, with its gradient
}
