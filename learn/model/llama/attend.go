package llama

import (
	"math"

	"github.com/psyche-go/psyche/learn/torch"
)

// slides reports whether, in a text of a number of tokens, some token does not attend to all tokens
// before it.
func (b *block) slides(tokens int64) bool {
	window, chunk := int64(b.layer.Window), int64(b.layer.Chunk)
	return window > 0 && tokens > window || chunk > 0 && tokens > chunk
}

// leastBlock is the minimum number of queries that attend computes at once in a layer with a
// window. If the window has more tokens, attend computes as many queries as the window has tokens.
const leastBlock = 16

// attend returns the output of the heads for q [B,T,H,D], with keys and values [B,S,KV,D]. The last
// T keys and values belong to the same tokens as q.
func (m *Llama) attend(s *torch.Scope, b *block, q, k, v *torch.Tensor) *torch.Tensor {
	if b.layer.Chunk > 0 {
		return m.attendChunks(s, b, q, k, v)
	}
	if m.config.Scales.ScoreCap == 0 && b.extra.sinks == nil && !b.slides(k.Dim(1)) {
		return q.CausalAttention(k, v, m.config.Scales.Score)
	}
	T, S, size := q.Dim(1), k.Dim(1), max(int64(b.layer.Window), leastBlock)
	if b.layer.Window == 0 || T <= size {
		return m.attendAtOnce(s, b, q, k, v)
	}
	var blocks []*torch.Tensor // together they contain fewer scores than all pairs of tokens
	for first := int64(0); first < T; first += size {
		count := min(size, T-first)
		seen := S - T + first + count
		blocks = append(blocks, m.attendAtOnce(s, b, q.Narrow(1, first, count), k.Narrow(1, 0, seen), v.Narrow(1, 0, seen)))
	}
	return s.Cat(1, blocks...)
}

// attendChunks is attend for a layer with chunks. Tokens attend to earlier tokens of the same
// chunk.
func (m *Llama) attendChunks(s *torch.Scope, b *block, q, k, v *torch.Tensor) *torch.Tensor {
	T, S, size := q.Dim(1), k.Dim(1), int64(b.layer.Chunk)
	var chunks []*torch.Tensor
	for first := int64(0); first < T; {
		position := S - T + first
		begin := position / size * size
		end := min(begin+size, S)
		keys, values := k.Narrow(1, begin, end-begin), v.Narrow(1, begin, end-begin)
		chunks = append(chunks, q.Narrow(1, first, end-position).CausalAttention(keys, values, m.config.Scales.Score))
		first += end - position
	}
	return s.Cat(1, chunks...)
}

// attendAtOnce is attend with the scores of all queries.
func (m *Llama) attendAtOnce(s *torch.Scope, b *block, q, k, v *torch.Tensor) *torch.Tensor {
	scales := m.config.Scales
	B, T, H, D := q.Dim(0), q.Dim(1), q.Dim(2), q.Dim(3)
	S, KV := k.Dim(1), k.Dim(2)
	if past := S - T; b.layer.Window > 0 && past >= int64(b.layer.Window) { // no query attends to the oldest tokens
		unseen := past - int64(b.layer.Window) + 1
		k, v, S = k.Narrow(1, unseen, S-unseen), v.Narrow(1, unseen, S-unseen), S-unseen
	}
	// [B,KV,H/KV·T,·] times [B,KV,·,·]: heads that share keys are adjacent.
	grouped := q.Permute(0, 2, 1, 3).Reshape(B, KV, H/KV*T, D)
	scores := grouped.Matmul(k.Permute(0, 2, 3, 1)).To(torch.F32).MulScalar(scales.Score)
	if scales.ScoreCap != 0 {
		scores = capped(scores, scales.ScoreCap)
	}
	scores = scores.Reshape(B, H, T, S).Add(unseen(s, T, S, int64(b.layer.Window)))
	if b.extra.sinks != nil { // an additional score, without a token
		sinks := b.extra.sinks.Reshape(1, H, 1, 1).Expand(B, H, T, 1)
		scores = s.Cat(3, scores, sinks).Softmax(3).Narrow(3, 0, S)
	} else {
		scores = scores.Softmax(3)
	}
	mixed := scores.To(v.DType()).Reshape(B, KV, H/KV*T, S).Matmul(v.Permute(0, 2, 1, 3))
	return mixed.Reshape(B, H, T, D).Permute(0, 2, 1, 3)
}

// unseen returns [T,S] with −∞ where one of the last T of S tokens does not attend to another, and
// 0 elsewhere.
func unseen(s *torch.Scope, T, S, window int64) *torch.Tensor {
	mask := make([]float32, T*S)
	for t := range T {
		own, row := S-T+t, mask[t*S:(t+1)*S]
		for other := range row {
			if int64(other) > own || window > 0 && int64(other) <= own-window {
				row[other] = float32(math.Inf(-1))
			}
		}
	}
	return s.FromFloat32s(mask, T, S)
}

// capped returns c·tanh(x/c).
func capped(x *torch.Tensor, c float64) *torch.Tensor { return tanh(x.MulScalar(1 / c)).MulScalar(c) }

func tanh(x *torch.Tensor) *torch.Tensor {
	return x.MulScalar(2).Sigmoid().MulScalar(2).AddScalar(-1)
}

// gelu returns x/2·(1+tanh(u)) with u = √(2/π)·(x+0.044715·x³), which is x·sigmoid(2u).
func gelu(x *torch.Tensor) *torch.Tensor {
	inner := x.Mul(x).MulScalar(0.044715).AddScalar(1).Mul(x)
	return x.Mul(inner.MulScalar(2 * math.Sqrt(2/math.Pi)).Sigmoid())
}
