package experts

import (
	"slices"

	"github.com/psyche-go/psyche/learn/torch"
)

// Stacked contains all experts of a layer, with one tensor for each matrix. Rows are multiplied
// from the left.
type Stacked struct {
	GateUp, Down         *torch.Tensor // [experts,width,2·inner] and [experts,inner,width]
	GateUpBias, DownBias *torch.Tensor // [experts,2·inner] and [experts,width]; nil: no bias
	// Gated computes the inner values [e,n,inner] from gates and factors [e,n,2·inner].
	Gated func(gateUp *torch.Tensor) *torch.Tensor
	// ScaleInput multiplies the input of an expert by the share of the token, instead of its
	// output.
	ScaleInput bool
}

// way is the method of computing the chosen experts. The results agree up to rounding.
type way int

const (
	oneByOne way = iota // views of the matrices; each view costs the size of the whole tensor in the backward pass
	picked              // one batched product with copies of the used matrices
	together            // one batched product with all matrices
)

// Mix returns for each of rows [tokens,width] the sum of the outputs of its experts in choices,
// weighted by share f32 [tokens,chosen].
//
// Mix computes the experts of a single token one by one. For more tokens it makes one batched
// product of the used experts, or of all if most are in use, in which each has as many rows as the
// busiest expert. The method depends only on choices, so equal inputs give equal bits with and
// without gradients.
func (e Stacked) Mix(s *torch.Scope, rows *torch.Tensor, choices []int64, share *torch.Tensor) *torch.Tensor {
	d := newDispatch(choices, int(share.Dim(1)), int(e.GateUp.Dim(0)))
	return e.mix(s, rows, choices, share, d, d.way(share.Dim(0)))
}

// way returns how to compute the experts for a number of tokens.
func (d dispatch) way(tokens int64) way {
	switch {
	case tokens == 1:
		return oneByOne
	case 2*len(d.used()) <= len(d.counts):
		return picked
	}
	return together
}

// used returns the experts that have a token.
func (d dispatch) used() (experts []int64) {
	for i, count := range d.counts {
		if count > 0 {
			experts = append(experts, int64(i))
		}
	}
	return experts
}

func (e Stacked) mix(s *torch.Scope, rows *torch.Tensor, choices []int64, share *torch.Tensor, d dispatch, how way) *torch.Tensor {
	tokens, chosen := share.Dim(0), share.Dim(1)
	scale := share.To(rows.DType()).Unsqueeze(2)
	from := d.rows // row of the input for each slot
	if e.ScaleInput {
		rows = rows.Unsqueeze(1).Mul(scale).Reshape(tokens*chosen, -1)
		from = make([]int64, len(choices))
		for choice, place := range d.back {
			from[place] = int64(choice)
		}
	}
	var made *torch.Tensor
	switch how {
	case oneByOne:
		made = e.oneByOne(s, rows, from, d)
	case picked:
		made = e.batched(s, rows, from, d, true)
	default:
		made = e.batched(s, rows, from, d, false)
	}
	made = made.Reshape(tokens, chosen, -1)
	if !e.ScaleInput {
		made = made.Mul(scale)
	}
	return made.SumDim(1, false)
}

// oneByOne returns the output of every choice [tokens·chosen,width].
func (e Stacked) oneByOne(s *torch.Scope, rows *torch.Tensor, from []int64, d dispatch) *torch.Tensor {
	sorted := rows.IndexSelect(0, s.FromInt64s(from, int64(len(from)))).Unsqueeze(0)
	var parts []*torch.Tensor
	first := int64(0)
	for _, expert := range d.used() {
		count := d.counts[expert]
		only := e.each(func(matrix *torch.Tensor) *torch.Tensor { return matrix.Narrow(0, expert, 1) })
		parts = append(parts, only.of(sorted.Narrow(1, first, count)).Squeeze(0))
		first += count
	}
	return s.Cat(0, parts...).IndexSelect(0, s.FromInt64s(d.back, int64(len(d.back))))
}

// batched returns the output of every choice [tokens·chosen,width]. A row of zeros fills slots
// without a token.
func (e Stacked) batched(s *torch.Scope, rows *torch.Tensor, from []int64, d dispatch, pick bool) *torch.Tensor {
	counts := d.counts
	if pick {
		used := d.used()
		index := s.FromInt64s(used, int64(len(used)))
		e = e.each(func(matrix *torch.Tensor) *torch.Tensor { return matrix.IndexSelect(0, index) })
		counts = slices.DeleteFunc(slices.Clone(counts), func(count int64) bool { return count == 0 })
	}
	experts, places, width, empty := int64(len(counts)), slices.Max(counts), rows.Dim(1), rows.Dim(0)
	index, moved := make([]int64, 0, experts*places), make([]int64, 0, len(from)) // moved: new slot of each slot
	first := int64(0)
	for i, count := range counts {
		for place := range count {
			moved = append(moved, int64(i)*places+place)
		}
		index = append(index, from[first:first+count]...)
		index = append(index, slices.Repeat([]int64{empty}, int(places-count))...)
		first += count
	}
	back := make([]int64, len(d.back))
	for choice, place := range d.back {
		back[choice] = moved[place]
	}
	filled := s.Cat(0, rows, s.Zeros(rows.DType(), 1, width)).IndexSelect(0, s.FromInt64s(index, int64(len(index))))
	made := e.of(filled.Reshape(experts, places, width))
	return made.Reshape(-1, width).IndexSelect(0, s.FromInt64s(back, int64(len(back))))
}

// each returns the experts with a function applied to each tensor.
func (e Stacked) each(take func(*torch.Tensor) *torch.Tensor) Stacked {
	e.GateUp, e.Down = take(e.GateUp), take(e.Down)
	if e.GateUpBias != nil {
		e.GateUpBias, e.DownBias = take(e.GateUpBias), take(e.DownBias)
	}
	return e
}

// of computes the experts for rows [experts,n,width], in their type.
func (e Stacked) of(rows *torch.Tensor) *torch.Tensor {
	product := func(x, weight, bias *torch.Tensor) *torch.Tensor {
		y := x.Matmul(weight.To(rows.DType()))
		if bias == nil {
			return y
		}
		return y.Add(bias.To(rows.DType()).Unsqueeze(1))
	}
	return product(e.Gated(product(rows, e.GateUp, e.GateUpBias)), e.Down, e.DownBias)
}
