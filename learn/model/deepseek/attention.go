package deepseek

import (
	"math"

	"github.com/psyche-go/psyche/learn/torch"
)

// latentEps is added to the mean square in the norms of compressed queries, keys and values,
// independent of the config's value for the other norms.
const latentEps = 1e-6

// attention contains the weights of multi-head latent attention: queries through queriesA and a
// norm, or directly; keys and values through keysA, a norm and keysB. The output of keysA beyond
// the compressed part is the part of the key with positions, which all heads share.
type attention struct {
	norm               *torch.Tensor // [HiddenSize]
	queriesA, queriesN *torch.Tensor // [QLoraRank,HiddenSize], [QLoraRank]; nil without compression
	queries            *torch.Tensor // [heads·(nope+rope), QLoraRank or HiddenSize]
	keysA, keysN       *torch.Tensor // [KVLoraRank+rope,HiddenSize], [KVLoraRank]
	keysB              *torch.Tensor // [heads·(nope+value),KVLoraRank]
	output             *torch.Tensor // [HiddenSize,heads·value]
}

// scoreScale returns the factor of the scores before the softmax.
func (c Config) scoreScale() float64 {
	scale := 1 / math.Sqrt(float64(c.QKNopeHeadDim+c.QKRopeHeadDim))
	if c.Rope.Yarn != nil {
		scale *= c.Rope.Yarn.ScoreScale
	}
	return scale
}

// split returns the queries of each head without and with positions [B,T,heads,·], and the
// compressed keys and values [B,T,KVLoraRank] with the shared part of the keys [B,T,1,·].
func (m *DeepSeek) split(a *attention, x, cos, sin *torch.Tensor) (nope, turned, latent, shared *torch.Tensor) {
	c := m.config
	B, T, heads := x.Dim(0), x.Dim(1), int64(c.NumAttentionHeads)
	width, rope, rank := int64(c.QKNopeHeadDim), int64(c.QKRopeHeadDim), int64(c.KVLoraRank)
	x = x.RMSNorm(a.norm, c.RMSNormEps)
	q := x
	if a.queriesA != nil {
		q = m.linear(x, a.queriesA).RMSNorm(a.queriesN, latentEps)
	}
	q = m.linear(q, a.queries).Reshape(B, T, heads, width+rope)
	kv := m.linear(x, a.keysA)
	latent = kv.Narrow(2, 0, rank).RMSNorm(a.keysN, latentEps)
	shared = m.rotate(kv.Narrow(2, rank, rope).Unsqueeze(2), cos, sin)
	return q.Narrow(3, 0, width), m.rotate(q.Narrow(3, width, rope), cos, sin), latent, shared
}

// attend returns the attention of a layer for x [B,T,HiddenSize], in the same shape, without the
// residual.
func (m *DeepSeek) attend(s *torch.Scope, a *attention, x, cos, sin *torch.Tensor) *torch.Tensor {
	c := m.config
	B, T, heads := x.Dim(0), x.Dim(1), int64(c.NumAttentionHeads)
	nope, value, rope := int64(c.QKNopeHeadDim), int64(c.VHeadDim), int64(c.QKRopeHeadDim)
	queries, turned, latent, shared := m.split(a, x, cos, sin)
	kv := m.linear(latent, a.keysB).Reshape(B, T, heads, nope+value)
	q := s.Cat(3, queries, turned)
	k := s.Cat(3, kv.Narrow(3, 0, nope), shared.Expand(B, T, heads, rope))
	mixed := q.CausalAttention(k, kv.Narrow(3, nope, value), c.scoreScale())
	return m.linear(mixed.Reshape(B, T, heads*value), a.output)
}
