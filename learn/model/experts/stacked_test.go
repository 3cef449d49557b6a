package experts

import (
	"math"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestStackedWays compares batched products with experts computed one by one: outputs, and gradients of inputs,
// shares and matrices. One expert has no token.
func TestStackedWays(t *testing.T) {
	const tokens, chosen, count, width, inner = 5, 2, 4, 3, 2
	choices := []int64{0, 2, 2, 0, 2, 3, 3, 2, 0, 2} // expert 1 has no token
	e := torchtest.Engine(t)
	for _, scaleInput := range []bool{false, true} {
		results := map[way][]float32{}
		for _, how := range []way{oneByOne, picked, together} {
			torchtest.Do(t, e, true, func(s *torch.Scope) error {
				seed := 0.0
				leaf := func(shape ...int64) *torch.Tensor {
					n := int64(1)
					for _, size := range shape {
						n *= size
					}
					values := make([]float32, n)
					for i := range values {
						seed++
						values[i] = float32(math.Sin(seed))
					}
					return s.FromFloat32s(values, shape...).SetRequiresGrad(true)
				}
				rows, share := leaf(tokens, width), leaf(tokens, chosen)
				experts := Stacked{
					GateUp: leaf(count, width, 2*inner), GateUpBias: leaf(count, 2*inner), Down: leaf(count, inner, width), DownBias: leaf(count, width),
					Gated:      func(x *torch.Tensor) *torch.Tensor { return x.Narrow(2, 0, inner).SwiGLU(x.Narrow(2, inner, inner)) },
					ScaleInput: scaleInput,
				}
				y := experts.mix(s, rows, choices, share, newDispatch(choices, chosen, count), how)
				y.Mul(y).Sum().Backward()
				out := y.CopyFloat32s()
				for _, leaf := range []*torch.Tensor{rows, share, experts.GateUp, experts.GateUpBias, experts.Down, experts.DownBias} {
					out = append(out, leaf.Grad().Contiguous().CopyFloat32s()...)
				}
				results[how] = out
				return nil
			})
		}
		for how, got := range results {
			for i, want := range results[oneByOne] {
				if math.Abs(float64(got[i]-want)) > 1e-5 {
					t.Fatalf("scaled input %t, way %d: number %d is %v, computed one by one %v", scaleInput, how, i, got[i], want)
				}
			}
		}
	}
}

// TestChosenWay checks the selected way for numbers of tokens and of used experts.
func TestChosenWay(t *testing.T) {
	for _, test := range []struct {
		choices []int64
		tokens  int64
		want    way
	}{{[]int64{0, 1, 2}, 1, oneByOne}, {[]int64{0, 0, 0, 1}, 4, picked}, {[]int64{0, 1, 2}, 3, together}} {
		d := newDispatch(test.choices, len(test.choices)/int(test.tokens), 4)
		if got := d.way(test.tokens); got != test.want {
			t.Errorf("%v of %d tokens: way %d, want %d", test.choices, test.tokens, got, test.want)
		}
	}
}
