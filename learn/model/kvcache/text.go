package kvcache

import "github.com/psyche-go/psyche/learn/torch"

// Text contains the next tokens of a text, with the cache of its previous tokens.
type Text struct {
	IDs   []int32 // at least one
	Cache *Cache
}

// Row contains the tokens of several texts one after another, as if they belonged to one text. All
// layers except attention compute each token separately, so that the weights are read once for all
// texts (selective batching: Yu et al., Orca, OSDI 2022).
type Row []Text

// IDs returns the tokens i64 [1,T].
func (r Row) IDs(s *torch.Scope) *torch.Tensor {
	var ids []int32
	for _, t := range r {
		ids = append(ids, t.IDs...)
	}
	return s.FromInt32s(ids, 1, int64(len(ids)))
}

// Each joins the results of compute for each text along a dimension. first and count are the
// position of the text's tokens in the row.
func (r Row) Each(s *torch.Scope, dim int, compute func(t Text, first, count int64) *torch.Tensor) *torch.Tensor {
	parts := make([]*torch.Tensor, 0, len(r))
	first := int64(0)
	for _, t := range r {
		count := int64(len(t.IDs))
		parts = append(parts, compute(t, first, count))
		first += count
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return s.Cat(dim, parts...)
}

// Ends returns the elements of x [1,T,…] for the last token of each text, [1,N,…].
func (r Row) Ends(s *torch.Scope, x *torch.Tensor) *torch.Tensor {
	return r.Each(s, 1, func(_ Text, first, count int64) *torch.Tensor { return x.Narrow(1, first+count-1, 1) })
}

// Advance counts the tokens of all texts, which were appended to all layers of their caches.
func (r Row) Advance() {
	for _, t := range r {
		t.Cache.Advance(int64(len(t.IDs)))
	}
}
