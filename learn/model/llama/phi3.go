package llama

import (
	"slices"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
	"github.com/psyche-go/psyche/learn/model/rotary"
	"github.com/psyche-go/psyche/learn/torch"
)

// phiFields contains the fields of Phi 3.
type phiFields struct {
	ResidualDropout  float64 `json:"resid_pdrop"`
	EmbeddingDropout float64 `json:"embd_pdrop"`
}

// varyPhi3 packs the matrices of queries, keys and values into one, and the matrices of gate and up
// into another. It gives all layers the same window. It may rotate only a part of each head,
// differently in long and in short texts.
func varyPhi3(c *Config, p *hfconfig.Checker, d hfconfig.Document, o own) {
	d.RefuseBiases(p)
	noWindows(p, o)
	switch {
	case o.ResidualDropout != 0:
		p.Refuse("resid_pdrop", o.ResidualDropout)
	case o.EmbeddingDropout != 0:
		p.Refuse("embd_pdrop", o.EmbeddingDropout)
	}
	c.Packed = Packed{Attention: true, Feed: true}
	tokens := o.SlidingWindow.or(p, 0)
	c.windows(p, own{}, tokens, func(int) bool { return tokens > 0 })
	c.partly(p, d, 1)
	c.Rope = rotary.ParseLongRoPE(p, d, c.MaxPositionEmbeddings, phiContext, c.Turning)
}

// phiContext is the default of original_max_position_embeddings.
const phiContext = 4096

const packedAttention, packedFeed = "self_attn.qkv_proj.weight", "mlp.gate_up_proj.weight"

// pack replaces the shapes of packed matrices by the shape of the combined one.
func pack(into string, shapes map[string][]int64, parts ...string) {
	whole := slices.Clone(shapes[parts[0]])
	whole[0] = 0
	for _, name := range parts {
		whole[0] += shapes[name][0]
		delete(shapes, name)
	}
	shapes[into] = whole
}

// unpacked returns the layer with views of the packed matrices.
func (b *block) unpacked(c Config) block {
	own := *b
	if all := b.packed.attention; all != nil {
		queries, keys := int64(c.NumAttentionHeads*c.HeadDim), int64(c.NumKeyValueHeads*c.HeadDim)
		own.attention.Query, own.attention.Key = all.Narrow(0, 0, queries), all.Narrow(0, queries, keys)
		own.attention.Value = all.Narrow(0, queries+keys, keys)
	}
	if pair := b.packed.feed; pair != nil {
		inner := int64(c.IntermediateSize)
		own.gate, own.up = pair.Narrow(0, 0, inner), pair.Narrow(0, inner, inner)
	}
	return own
}

// packed contains the combined matrices of a layer.
type packed struct{ attention, feed *torch.Tensor }
