package deepseek

import (
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

// NewCache returns a cache for Next. It contains KVLoraRank + QKRopeHeadDim numbers for each token
// and layer, independent of the number of heads.
func (m *DeepSeek) NewCache() *kvcache.Cache {
	return kvcache.New(m.config.NumHiddenLayers, int64(m.config.MaxPositionEmbeddings))
}

// Next returns the logits f32 [N,VocabSize] of the next token of N texts. It adds the tokens of
// texts to their caches. Gradients must be off.
func (m *DeepSeek) Next(s *torch.Scope, texts ...kvcache.Text) *torch.Tensor {
	row := kvcache.Row(texts)
	for _, t := range row {
		m.checkLength(t.Cache.Len() + int64(len(t.IDs)))
	}
	cos := row.Each(s, 0, func(t kvcache.Text, _, count int64) *torch.Tensor {
		cos, _ := m.rotations(s, t.Cache.Len(), count)
		return cos
	})
	sin := row.Each(s, 0, func(t kvcache.Text, _, count int64) *torch.Tensor {
		_, sin := m.rotations(s, t.Cache.Len(), count)
		return sin
	})
	x := m.embedding.Embed(row.IDs(s), m.options.Compute)
	for i := range m.blocks {
		_ = s.Sub(func(s *torch.Scope) error { // frees the intermediate tensors of the layer
			b := &m.blocks[i]
			y, _ := m.feed(s, b, x.Add(m.attendCompressed(s, i, x, cos, sin, row)))
			x = s.Lift(y)
			return nil
		})
	}
	row.Advance()
	x = row.Ends(s, x).RMSNorm(m.norm, m.config.RMSNormEps)
	return m.linear(x, m.head).Reshape(-1, int64(m.config.VocabSize)).To(torch.F32)
}

// attendCompressed is attend on the compressed keys and values of the caches, which are never
// expanded: a query times an expanded key is the query times the key's matrix, times the compressed
// key (arXiv 2405.04434, section 2.1.2). All heads then share one key, consisting of the compressed
// one and the part with positions, and one value, the compressed one.
func (m *DeepSeek) attendCompressed(s *torch.Scope, layer int, x, cos, sin *torch.Tensor, row kvcache.Row) *torch.Tensor {
	c, a := m.config, &m.blocks[layer].attention
	B, T, heads := x.Dim(0), x.Dim(1), int64(c.NumAttentionHeads)
	nope, value, rank := int64(c.QKNopeHeadDim), int64(c.VHeadDim), int64(c.KVLoraRank)
	queries, turned, latent, shared := m.split(a, x, cos, sin)
	expand := a.keysB.To(m.options.Compute).Reshape(heads, nope+value, rank)

	// [B,T,heads,·] times a matrix [heads,·,·] for each head.
	perHead := func(t, matrices *torch.Tensor) *torch.Tensor {
		product := t.Permute(2, 0, 1, 3).Reshape(heads, B*T, -1).Matmul(matrices)
		return product.Permute(1, 0, 2).Reshape(B, T, heads, -1)
	}
	q := s.Cat(3, perHead(queries, expand.Narrow(1, 0, nope)), turned)
	added := s.Cat(3, latent.Unsqueeze(2), shared)
	mixed := row.Each(s, 1, func(t kvcache.Text, first, count int64) *torch.Tensor {
		keys := t.Cache.Append(s, layer, added.Narrow(1, first, count))[0]
		return q.Narrow(1, first, count).CausalAttention(keys, keys.Narrow(3, 0, rank), c.scoreScale())
	})
	mixed = perHead(mixed, expand.Narrow(1, nope, value).Transpose(1, 2))
	return m.linear(mixed.Reshape(B, T, heads*value), a.output)
}
