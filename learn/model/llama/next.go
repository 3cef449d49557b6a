package llama

import (
	"fmt"
	"math"

	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

// NewCache makes a cache for Next.
func (m *Llama) NewCache() *kvcache.Cache {
	return kvcache.New(m.config.NumHiddenLayers, int64(m.config.MaxPositionEmbeddings))
}

// Next gives the logits f32 [B,VocabSize] of the token after ids i64 [B,T], which follow
// the tokens of the cache and are added to it. Without gradients only.
func (m *Llama) Next(s *torch.Scope, ids *torch.Tensor, cache *kvcache.Cache) *torch.Tensor {
	past, count := cache.Len(), ids.Dim(1)
	if past+count > int64(m.config.MaxPositionEmbeddings) {
		panic(&torch.Error{Op: "llama", Message: fmt.Sprintf("%d tokens, max_position_embeddings is %d",
			past+count, m.config.MaxPositionEmbeddings)})
	}
	cos, sin := m.rotations(s, past, count)
	x := m.embedding.Embed(ids, m.options.Compute)
	for i := range m.blocks {
		_ = s.Sub(func(s *torch.Scope) error { // frees what the layer leaves
			x = s.Lift(m.nextLayer(s, i, x, cos, sin, cache))
			return nil
		})
	}
	cache.Advance(count)
	x = x.Narrow(1, count-1, 1).RMSNorm(m.norm, m.config.RMSNormEps)
	return x.Linear(m.head.To(m.options.Compute)).Reshape(-1, int64(m.config.VocabSize)).To(torch.F32)
}

func (m *Llama) nextLayer(s *torch.Scope, layer int, x, cos, sin *torch.Tensor, cache *kvcache.Cache) *torch.Tensor {
	b := &m.blocks[layer]
	q, k, v := m.project(b, x, cos, sin)
	kept := cache.Append(s, layer, k, v)
	x = m.output(b, x, q.CausalAttention(kept[0], kept[1], 1/math.Sqrt(float64(m.config.HeadDim))))
	return m.feedForwardBlock(b, x, false)
}
