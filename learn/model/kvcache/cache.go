package kvcache

import (
	"fmt"

	"github.com/psyche-go/psyche/learn/torch"
)

// Cache contains tensors [B,tokens,…] for each layer of a model, for the same tokens in all layers.
// Its methods are called inside the engine's Do, with gradients off.
type Cache struct {
	// Border is a length in tokens. The model computes all tokens of a longer text differently, so
	// the tensors of a text that grows beyond Border are no longer valid; 0: no border.
	Border int64

	layers   [][]*torch.Tensor // with spare capacity
	limit    int64
	length   int64
	expected int64
}

// initialCapacity is the initial capacity in tokens.
const initialCapacity = 64

// New returns an empty cache. limit is the maximum number of tokens.
func New(layers int, limit int64) *Cache {
	return &Cache{layers: make([][]*torch.Tensor, layers), limit: limit}
}

// Len returns the number of tokens in the cache.
func (c *Cache) Len() int64 { return c.length }

// Expect sets the total number of tokens of a new text that comes in pieces. If the total is beyond
// the border, all pieces count as beyond it, including the first.
func (c *Cache) Expect(tokens int64) { c.expected = tokens }

// Beyond reports whether the text with tokens more tokens is beyond the border.
func (c *Cache) Beyond(tokens int64) bool {
	return c.Border > 0 && max(c.expected, c.length+tokens) > c.Border
}

// Crosses reports whether tokens more tokens move the cached text beyond the border.
func (c *Cache) Crosses(tokens int64) bool {
	return c.length > 0 && !c.Beyond(0) && c.Beyond(tokens)
}

// Append appends a layer's tensors of new tokens, each [B,T,…], to the cache, and returns all of
// them: [B,Len+T,…], valid until the next Append to the layer. The new tokens count once Advance is
// called; until then another Append overwrites them.
func (c *Cache) Append(s *torch.Scope, layer int, added ...*torch.Tensor) []*torch.Tensor {
	n := added[0].Dim(1)
	if c.length+n > c.limit {
		panic(&torch.Error{Op: "kvcache", Message: fmt.Sprintf("%d tokens, the cache has room for %d", c.length+n, c.limit)})
	}
	if c.layers[layer] == nil {
		c.layers[layer] = make([]*torch.Tensor, len(added))
	}
	out := make([]*torch.Tensor, len(added))
	for i, t := range added {
		held := c.grown(s, c.layers[layer][i], t)
		c.layers[layer][i] = held
		held.Narrow(1, c.length, n).CopyFrom(t)
		out[i] = held.Narrow(1, 0, c.length+n)
	}
	return out
}

// grown returns held with capacity for the tokens of added. The capacity doubles, so that copying
// costs little in the long run.
func (c *Cache) grown(s *torch.Scope, held, added *torch.Tensor) *torch.Tensor {
	need := c.length + added.Dim(1)
	if held != nil && held.Dim(1) >= need {
		return held
	}
	shape := added.Shape()
	shape[1] = min(max(2*need, initialCapacity), c.limit)
	larger := s.Zeros(added.DType(), shape...)
	if held != nil {
		larger.Narrow(1, 0, c.length).CopyFrom(held.Narrow(1, 0, c.length))
		held.Free()
	}
	return s.Keep(larger)
}

// Advance counts the tokens that were appended to all layers.
func (c *Cache) Advance(tokens int64) { c.length += tokens }

// Shorten removes all tokens except the first tokens ones.
func (c *Cache) Shorten(tokens int64) { c.length = min(c.length, tokens) }

// Reset removes all tokens, including expected ones, and keeps the memory.
func (c *Cache) Reset() { c.length, c.expected = 0, 0 }

// Free frees the memory. The cache is then empty, and may be used again.
func (c *Cache) Free() {
	for i, layer := range c.layers {
		for _, t := range layer {
			if t != nil {
				t.Free()
			}
		}
		c.layers[i] = nil
	}
	c.Reset()
}
