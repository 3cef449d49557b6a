package torch_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// randoms returns random f32 tensors that require gradients.
func randoms(s *torch.Scope, random *rand.Rand, shapes ...[]int64) []*torch.Tensor {
	var out []*torch.Tensor
	for _, shape := range shapes {
		n := int64(1)
		for _, size := range shape {
			n *= size
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(random.NormFloat64())
		}
		out = append(out, s.FromFloat32s(values, shape...).SetRequiresGrad(true))
	}
	return out
}

// sameGradients runs two implementations of one function on the same inputs. It compares their
// results and the gradients of a random weighting of the results.
func sameGradients(t *testing.T, s *torch.Scope, inputs []*torch.Tensor, fused, plain func(in []*torch.Tensor) *torch.Tensor) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var weighting *torch.Tensor
	run := func(f func(in []*torch.Tensor) *torch.Tensor) [][]float32 {
		y := f(inputs)
		if weighting == nil {
			weighting = randoms(s, random, y.Shape())[0].Detach()
		}
		y.Mul(weighting).Sum().Backward()
		out := [][]float32{y.Contiguous().CopyFloat32s()}
		for _, x := range inputs {
			out = append(out, x.Grad().Contiguous().CopyFloat32s())
			x.ClearGrad()
		}
		return out
	}
	got, want := run(fused), run(plain)
	for i := range want {
		for j := range want[i] {
			if d := math.Abs(float64(got[i][j] - want[i][j])); !(d <= 2e-5*(1+math.Abs(float64(want[i][j])))) {
				t.Errorf("output %d (0 is the result, then gradients)[%d] is %v, want %v", i, j, got[i][j], want[i][j])
				break
			}
		}
	}
}

func TestCausalAttention(t *testing.T) {
	e := torchtest.Engine(t)
	tests := []struct {
		name                string
		b, t, h, d, s, keys int64
	}{
		{"one head", 1, 5, 1, 4, 5, 1},
		{"grouped", 2, 7, 6, 4, 7, 2},
		{"several blocks", 2, 150, 4, 8, 150, 2},
		{"block boundary", 1, 128, 2, 4, 128, 1},
		{"after a past", 2, 3, 4, 8, 10, 2},
		{"one new token", 1, 1, 4, 8, 300, 2},
		{"long after a past", 1, 140, 2, 4, 170, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			torchtest.Do(t, e, true, func(s *torch.Scope) error {
				in := randoms(s, rand.New(rand.NewPCG(3, 4)), []int64{test.b, test.t, test.h, test.d},
					[]int64{test.b, test.s, test.keys, test.d}, []int64{test.b, test.s, test.keys, test.d})
				const scale = 0.3
				past := int(test.s - test.t)
				sameGradients(t, s, in, func(in []*torch.Tensor) *torch.Tensor {
					return in[0].CausalAttention(in[1], in[2], scale)
				}, func(in []*torch.Tensor) *torch.Tensor {
					repeat := func(x *torch.Tensor) *torch.Tensor { // [B,S,KV,D] to [B,H,S,D]
						x = x.Unsqueeze(3).Expand(-1, -1, -1, test.h/test.keys, -1)
						return x.Reshape(test.b, test.s, test.h, test.d).Transpose(1, 2)
					}
					scores := in[0].Transpose(1, 2).Matmul(repeat(in[1]).Transpose(2, 3)).MulScalar(scale)
					future := s.Full(torch.F32, 1, test.t, test.s).Triu(past + 1).To(torch.Bool)
					p := scores.MaskedFill(future, math.Inf(-1)).Softmax(-1)
					return p.Matmul(repeat(in[2])).Transpose(1, 2)
				})
				return nil
			})
		})
	}
}

func TestRMSNormAndSwiGLU(t *testing.T) {
	e := torchtest.Engine(t)
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		random := rand.New(rand.NewPCG(5, 6))
		sameGradients(t, s, randoms(s, random, []int64{3, 4, 10}, []int64{10}), func(in []*torch.Tensor) *torch.Tensor {
			return in[0].RMSNorm(in[1], 1e-3)
		}, func(in []*torch.Tensor) *torch.Tensor {
			mean := in[0].Mul(in[0]).MeanDim(-1, true)
			return in[0].Div(mean.AddScalar(1e-3).Sqrt()).Mul(in[1])
		})
		sameGradients(t, s, randoms(s, random, []int64{3, 33}, []int64{3, 33}), func(in []*torch.Tensor) *torch.Tensor {
			return in[0].SwiGLU(in[1])
		}, func(in []*torch.Tensor) *torch.Tensor {
			return in[0].Mul(in[0].Sigmoid()).Mul(in[1])
		})
		return nil
	})
}

func TestRoPE(t *testing.T) {
	e := torchtest.Engine(t)
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		in := randoms(s, rand.New(rand.NewPCG(7, 8)), []int64{2, 5, 3, 8}, []int64{5, 4})
		x, angle := in[0], in[1].Detach()
		cos, sin := angle.Cos(), angle.Sin()
		sameGradients(t, s, []*torch.Tensor{x}, func(in []*torch.Tensor) *torch.Tensor {
			return in[0].RoPE(cos, sin)
		}, func(in []*torch.Tensor) *torch.Tensor {
			a, b := in[0].Narrow(3, 0, 4), in[0].Narrow(3, 4, 4)
			c, n := cos.Unsqueeze(1), sin.Unsqueeze(1)
			return s.Cat(-1, a.Mul(c).Sub(b.Mul(n)), b.Mul(c).Add(a.Mul(n)))
		})
		return nil
	})
}

func TestLinearCrossEntropy(t *testing.T) {
	e := torchtest.Engine(t)
	tests := []struct {
		name    string
		targets []int32
		rows    int64
	}{
		{"one chunk", []int32{0, 3, 6, 1, 1}, 0},
		{"chunks", []int32{0, 3, 6, 1, 1}, 2},
		{"some ignored", []int32{torch.IgnoreTarget, 3, torch.IgnoreTarget, 1, 1}, 2},
		{"a chunk ignored", []int32{torch.IgnoreTarget, torch.IgnoreTarget, 6, 1, 1}, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			torchtest.Do(t, e, true, func(s *torch.Scope) error {
				targets := s.FromInt32s(test.targets, int64(len(test.targets)))
				in := randoms(s, rand.New(rand.NewPCG(9, 10)), []int64{5, 4}, []int64{7, 4})
				sameGradients(t, s, in, func(in []*torch.Tensor) *torch.Tensor {
					return torch.LinearCrossEntropyRows(in[0], in[1], targets, test.rows)
				}, func(in []*torch.Tensor) *torch.Tensor {
					return in[0].Linear(in[1]).CrossEntropy(targets)
				})
				return nil
			})
		})
	}
	t.Run("all ignored", func(t *testing.T) {
		torchtest.Do(t, e, true, func(s *torch.Scope) error {
			in := randoms(s, rand.New(rand.NewPCG(9, 10)), []int64{2, 4}, []int64{7, 4})
			loss := in[0].LinearCrossEntropy(in[1], s.Full(torch.I64, torch.IgnoreTarget, 2))
			loss.Backward()
			if norm := s.Norm(in[0].Grad(), in[1].Grad()); loss.Item() != 0 || norm != 0 {
				t.Errorf("loss %v, gradient norm %v, want zeros", loss.Item(), norm)
			}
			return nil
		})
	})
}

// TestLinearCrossEntropyShare compares the gradients with the gradients of share times the loss.
func TestLinearCrossEntropyShare(t *testing.T) {
	const share = 0.3
	torchtest.Do(t, torchtest.Engine(t), true, func(s *torch.Scope) error {
		targets := s.FromInt32s([]int32{torch.IgnoreTarget, 3, 6, 1, 1}, 5)
		in := randoms(s, rand.New(rand.NewPCG(9, 10)), []int64{5, 4}, []int64{7, 4})
		loss := in[0].LinearCrossEntropy(in[1], targets)
		loss.MulScalar(share).Backward()
		want := [][]float32{in[0].Grad().CopyFloat32s(), in[1].Grad().CopyFloat32s()}
		for _, x := range in {
			x.ClearGrad()
		}
		other := in[0].LinearCrossEntropyShare(in[1], targets, share)
		other.Backward()
		if got := other.Item(); math.Abs(got-loss.Item()) > 1e-6 {
			t.Errorf("the loss is %v, want %v", got, loss.Item())
		}
		for i, x := range in {
			for j, got := range x.Grad().CopyFloat32s() {
				if d := math.Abs(float64(got - want[i][j])); d > 1e-6 {
					t.Errorf("element %d of gradient %d is %v, want %v", j, i, got, want[i][j])
				}
			}
		}
		return nil
	})
	err := torchtest.Engine(t).Do(t.Context(), true, func(s *torch.Scope) error {
		in := randoms(s, rand.New(rand.NewPCG(9, 10)), []int64{2, 4}, []int64{7, 4})
		in[0].LinearCrossEntropyShare(in[1], s.Full(torch.I64, 1, 2), share).MulScalar(2).Backward()
		return nil
	})
	if refused := (*torch.Error)(nil); !errors.As(err, &refused) {
		t.Errorf("error = %v for another gradient than 1, want a *torch.Error", err)
	}
}

func TestAdamW(t *testing.T) {
	e := torchtest.Engine(t)
	optimizer := torch.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}
	const rate = 0.01
	torchtest.Do(t, e, false, func(s *torch.Scope) error {
		w, g := 1.0, 0.5
		var mean, square float64
		p, m, v := s.Full(torch.F32, w, 3).SetRequiresGrad(true), s.Zeros(torch.F32, 3), s.Zeros(torch.F32, 3)
		for step := int64(1); step <= 20; step++ {
			optimizer.Step(p, s.Full(torch.F32, g, 3), m, v, rate, step)
			mean = 0.9*mean + 0.1*g
			square = 0.95*square + 0.05*g*g
			k := float64(step)
			w -= rate * 0.1 * w
			w -= rate * mean / (1 - math.Pow(0.9, k)) / (math.Sqrt(square/(1-math.Pow(0.95, k))) + 1e-8)
			if got := float64(p.Float32s()[2]); math.Abs(got-w) > 1e-5 {
				t.Fatalf("step %d: weight %v, want %v", step, got, w)
			}
			g = math.Sin(k)
		}
		return nil
	})
}
