package experts

import "github.com/psyche-go/psyche/learn/torch"

// FeedForward contains two matrices [inner,width] and one matrix [width,inner].
type FeedForward struct{ Gate, Up, Down *torch.Tensor }

// Of returns the output of the layer for rows [n,width], computed in their type.
func (f FeedForward) Of(rows *torch.Tensor) *torch.Tensor {
	linear := func(x, weight *torch.Tensor) *torch.Tensor { return x.Linear(weight.To(rows.DType())) }
	return linear(linear(rows, f.Gate).SwiGLU(linear(rows, f.Up)), f.Down)
}

// Mix returns, for each of rows [tokens,width], the sum of the outputs of its experts in choices,
// the same number for each token, weighted by share f32 [tokens,chosen].
func Mix(s *torch.Scope, routed []FeedForward, rows *torch.Tensor, choices []int64, share *torch.Tensor) *torch.Tensor {
	tokens, chosen := share.Dim(0), share.Dim(1)
	made := dispatched(s, routed, rows, choices, int(chosen)).Reshape(tokens, chosen, -1)
	return made.Mul(share.To(rows.DType()).Unsqueeze(2)).SumDim(1, false)
}

// dispatched returns the output of every choice [tokens·chosen,width]. Each expert computes all its
// tokens together.
func dispatched(s *torch.Scope, routed []FeedForward, rows *torch.Tensor, choices []int64, chosen int) *torch.Tensor {
	d := newDispatch(choices, chosen, len(routed))
	sorted := rows.IndexSelect(0, s.FromInt64s(d.rows, int64(len(d.rows))))
	var parts []*torch.Tensor
	first := int64(0)
	for i, count := range d.counts {
		if count > 0 {
			parts = append(parts, routed[i].Of(sorted.Narrow(0, first, count)))
			first += count
		}
	}
	return s.Cat(0, parts...).IndexSelect(0, s.FromInt64s(d.back, int64(len(d.back))))
}
