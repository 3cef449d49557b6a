package llama

import (
	"fmt"

	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

// NewCache makes a cache for Next.
func (m *Llama) NewCache() *kvcache.Cache {
	cache := kvcache.New(m.config.NumHiddenLayers, int64(m.config.MaxPositionEmbeddings))
	if long := m.config.Rope.Long; long != nil {
		cache.Border = long.OriginalContext
	}
	return cache
}

// Next gives the logits f32 [B,VocabSize] of the token after ids i64 [B,T], which follow
// the tokens of the cache and are added to it. Without gradients only.
func (m *Llama) Next(s *torch.Scope, ids *torch.Tensor, cache *kvcache.Cache) *torch.Tensor {
	past, count := cache.Len(), ids.Dim(1)
	if past+count > int64(m.config.MaxPositionEmbeddings) {
		panic(&torch.Error{Op: "llama", Message: fmt.Sprintf("%d tokens, max_position_embeddings is %d",
			past+count, m.config.MaxPositionEmbeddings)})
	}
	if cache.Crosses(count) {
		panic(&torch.Error{Op: "llama", Message: fmt.Sprintf("a text that grows beyond %d tokens is computed otherwise, from its beginning on", cache.Border)})
	}
	at := m.rotations(s, past, count)
	x := m.embed(ids)
	for i := range m.blocks {
		_ = s.Sub(func(s *torch.Scope) error { // frees what the layer leaves
			x = s.Lift(m.nextLayer(s, i, x, at, cache))
			return nil
		})
	}
	cache.Advance(count)
	x = m.scaledHidden(x.Narrow(1, count-1, 1))
	return m.logits(x).Reshape(-1, int64(m.config.VocabSize)).To(torch.F32)
}

func (m *Llama) nextLayer(s *torch.Scope, layer int, x *torch.Tensor, at turned, cache *kvcache.Cache) *torch.Tensor {
	b := &m.blocks[layer]
	q, k, v := m.project(s, b, x, at)
	kept := cache.Append(s, layer, k, v)
	x = m.add(x, m.output(b, m.attend(s, b, q, kept[0], kept[1])), b.extra.afterAttention)
	return m.feedForwardBlock(s, b, x)
}
