package llama

import (
	"fmt"

	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

// NewCache returns a cache for Next.
func (m *Llama) NewCache() *kvcache.Cache {
	cache := kvcache.New(m.config.NumHiddenLayers, int64(m.config.MaxPositionEmbeddings))
	if long := m.config.Rope.Long; long != nil {
		cache.Border = long.OriginalContext
	}
	return cache
}

// Next returns the logits f32 [N,VocabSize] of the next token of N texts. It adds the tokens of
// texts to their caches. Gradients must be off.
func (m *Llama) Next(s *torch.Scope, texts ...kvcache.Text) *torch.Tensor {
	row := kvcache.Row(texts)
	for _, t := range row {
		m.checkNext(t)
	}
	at := m.rowRotations(s, row)
	x := m.embed(row.IDs(s))
	for i := range m.blocks {
		_ = s.Sub(func(s *torch.Scope) error { // frees the intermediate tensors of the layer
			x = s.Lift(m.nextLayer(s, i, x, at, row))
			return nil
		})
	}
	row.Advance()
	x = m.scaledHidden(row.Ends(s, x))
	return m.logits(x).Reshape(-1, int64(m.config.VocabSize)).To(torch.F32)
}

func (m *Llama) checkNext(t kvcache.Text) {
	count := int64(len(t.IDs))
	if length := t.Cache.Len() + count; length > int64(m.config.MaxPositionEmbeddings) {
		panic(&torch.Error{Op: "llama", Message: fmt.Sprintf("%d tokens, max_position_embeddings is %d", length, m.config.MaxPositionEmbeddings)})
	}
	if t.Cache.Crosses(count) {
		panic(&torch.Error{Op: "llama", Message: fmt.Sprintf("a text with more than %d tokens is recomputed from its start", t.Cache.Border)})
	}
}

// rowRotations returns the rotations of each text's tokens.
func (m *Llama) rowRotations(s *torch.Scope, row kvcache.Row) turned {
	of := make(map[*kvcache.Cache]turned, len(row))
	for _, t := range row {
		of[t.Cache] = m.rotations(s, t.Cache.Len(), int64(len(t.IDs)), t.Cache.Beyond(int64(len(t.IDs))))
	}
	all := func(choose func(turned) *torch.Tensor) *torch.Tensor {
		return row.Each(s, 0, func(t kvcache.Text, _, _ int64) *torch.Tensor { return choose(of[t.Cache]) })
	}
	at := turned{global: rotation{
		cos: all(func(r turned) *torch.Tensor { return r.global.cos }),
		sin: all(func(r turned) *torch.Tensor { return r.global.sin }),
	}}
	if m.config.Temper != (Temper{}) {
		at.temper = all(func(r turned) *torch.Tensor { return r.temper })
	}
	if m.config.LocalRope.Type != "" {
		at.local = rotation{
			cos: all(func(r turned) *torch.Tensor { return r.local.cos }),
			sin: all(func(r turned) *torch.Tensor { return r.local.sin }),
		}
	}
	return at
}

func (m *Llama) nextLayer(s *torch.Scope, layer int, x *torch.Tensor, at turned, row kvcache.Row) *torch.Tensor {
	b := &m.blocks[layer]
	q, k, v := m.project(s, b, x, at)
	mixed := row.Each(s, 1, func(t kvcache.Text, first, count int64) *torch.Tensor {
		kept := t.Cache.Append(s, layer, k.Narrow(1, first, count), v.Narrow(1, first, count))
		return m.attend(s, b, q.Narrow(1, first, count), kept[0], kept[1])
	})
	x = m.add(x, m.output(b, mixed), b.extra.afterAttention)
	return m.feedForwardBlock(s, b, x)
}
