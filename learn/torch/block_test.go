package torch_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// layer is a transformer layer of B=2, T=70, N=24, H=6, KV=2, D=4, M=20.
type layer struct {
	x, cos, sin *torch.Tensor
	attention   torch.AttentionWeights
	norm        *torch.Tensor
	gate        *torch.Tensor
	up, down    *torch.Tensor
}

const layerTokens, layerWidth = 70, 4

func newLayer(s *torch.Scope, dtype torch.DType) (layer, []*torch.Tensor) {
	in := randoms(s, rand.New(rand.NewPCG(11, 12)), []int64{2, layerTokens, 24}, []int64{24}, []int64{24, 24}, []int64{8, 24},
		[]int64{8, 24}, []int64{24, 24}, []int64{24}, []int64{20, 24}, []int64{20, 24}, []int64{24, 20}, []int64{layerTokens, 2})
	for i, t := range in {
		in[i] = t.Detach().MulScalar(0.5).To(dtype).SetRequiresGrad(true)
	}
	angles := in[10].Detach()
	return layer{
		x: in[0], cos: angles.Cos(), sin: angles.Sin(),
		attention: torch.AttentionWeights{Norm: in[1], Query: in[2], Key: in[3], Value: in[4], Output: in[5]},
		norm:      in[6], gate: in[7], up: in[8], down: in[9],
	}, in[:10]
}

func (l layer) fused(x *torch.Tensor, recompute bool) *torch.Tensor {
	y := x.AttentionBlock(l.attention, l.cos, l.sin, layerWidth, 0.5, 1e-5, recompute)
	return y.FeedForwardBlock(l.norm, l.gate, l.up, l.down, 1e-5, recompute)
}

func (l layer) composed() *torch.Tensor {
	h := l.x.RMSNorm(l.attention.Norm, 1e-5)
	q := h.Linear(l.attention.Query).Reshape(2, layerTokens, 6, layerWidth).RoPE(l.cos, l.sin)
	k := h.Linear(l.attention.Key).Reshape(2, layerTokens, 2, layerWidth).RoPE(l.cos, l.sin)
	v := h.Linear(l.attention.Value).Reshape(2, layerTokens, 2, layerWidth)
	y := l.x.Add(q.CausalAttention(k, v, 0.5).Reshape(2, layerTokens, 24).Linear(l.attention.Output))
	h = y.RMSNorm(l.norm, 1e-5)
	return y.Add(h.Linear(l.gate).SwiGLU(h.Linear(l.up)).Linear(l.down))
}

// Single elements are sums that cancel, so they show the order of f32 additions. The test therefore
// compares each gradient as a whole with the gradient of the composition in f64.
func TestBlocksAgainstComposition(t *testing.T) {
	e := torchtest.Engine(t)
	for _, recompute := range []bool{false, true} {
		torchtest.Do(t, e, true, func(s *torch.Scope) error {
			l, in := newLayer(s, torch.F32)
			exact, want := newLayer(s, torch.F64)
			y, z := l.fused(l.x, recompute), exact.composed()
			if d := distance(y, z); !(d < 5e-6) {
				t.Errorf("the result is %.1e away from the composition's", d)
			}
			y.Mul(l.x.Detach()).Sum().Backward()
			z.Mul(exact.x.Detach()).Sum().Backward()
			for i := range in {
				if d := distance(in[i].Grad(), want[i].Grad()); !(d < 5e-6) {
					t.Errorf("gradient %d is %.1e away from the composition's", i, d)
				}
			}
			return nil
		})
	}
}

// The code path for devices without our own loops runs on the CPU in f64.
func TestBlocksElsewhere(t *testing.T) {
	e := torchtest.Engine(t)
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		l, in := newLayer(s, torch.F64)
		narrow, weights := newLayer(s, torch.F32)
		l.fused(l.x, false).Mul(l.x.Detach()).Sum().Backward()
		narrow.fused(narrow.x, false).Mul(narrow.x.Detach()).Sum().Backward()
		for i := range in {
			if d := distance(in[i].Grad(), weights[i].Grad()); !(d < 1e-5) {
				t.Errorf("gradient %d in f64 is %.1e away from f32's", i, d)
			}
		}
		return nil
	})
}

func TestBlocksInBF16(t *testing.T) {
	e := torchtest.Engine(t)
	needs(t, e, torch.BF16)
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		l, in := newLayer(s, torch.F32)
		l.fused(l.x, false).Mul(l.x.Detach()).Sum().Backward()
		var want []*torch.Tensor
		for _, p := range in {
			want = append(want, p.Grad().Clone())
			p.ClearGrad()
		}
		x := l.x.Detach().To(torch.BF16).SetRequiresGrad(true)
		l.fused(x, false).Mul(x.Detach()).Sum().Backward()
		for i, p := range in[1:] {
			g := p.Grad()
			if g.DType() != torch.F32 {
				t.Errorf("gradient %d is %s, want f32", i+1, g.DType())
			}
			if d := distance(g, want[i+1]); !(d < 3e-2) {
				t.Errorf("gradient %d in bf16 is %.1e away from f32's", i+1, d)
			}
		}
		if d := distance(x.Grad(), want[0]); !(d < 3e-2) {
			t.Errorf("gradient of x in bf16 is %.1e away from f32's", d)
		}
		return nil
	})
}

// On devices whose libtorch supports it, texts may be generated in f16, without gradients.
func TestBlocksInF16(t *testing.T) {
	e := torchtest.Engine(t)
	needs(t, e, torch.F16)
	torchtest.Do(t, e, false, func(s *torch.Scope) error {
		l, _ := newLayer(s, torch.F32)
		if d := distance(l.fused(l.x.To(torch.F16), false), l.fused(l.x, false)); !(d < 3e-3) {
			t.Errorf("the result in f16 is %.1e away from f32's", d)
		}
		return nil
	})
}

// needs skips the test if the device cannot multiply the type. It ignores the speed.
func needs(t *testing.T, e *torch.Engine, dtype torch.DType) {
	t.Helper()
	err := e.Do(t.Context(), false, func(s *torch.Scope) error {
		a := s.Full(dtype, 1, 2, 8, 8)
		a.Matmul(a).Narrow(0, 0, 1).Reshape(8, 8).Linear(a.Narrow(0, 0, 1).Reshape(8, 8))
		return nil
	})
	if err != nil {
		t.Skip(err)
	}
}

// A second backward pass adds to the gradients, in f32.
func TestBlocksAccumulate(t *testing.T) {
	e := torchtest.Engine(t)
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		l, in := newLayer(s, torch.F32)
		l.fused(l.x, false).Sum().Backward()
		var once []*torch.Tensor
		for _, p := range in {
			once = append(once, p.Grad().Clone())
		}
		l.fused(l.x, false).Sum().Backward()
		for i, p := range in {
			if d := distance(p.Grad(), once[i].MulScalar(2)); !(d < 1e-6) {
				t.Errorf("gradient %d after two passes is %.1e away from twice the first", i, d)
			}
		}
		return nil
	})
}

// distance returns the relative error in the 2-norm.
func distance(got, want *torch.Tensor) float64 {
	a, b := got.Contiguous().CopyFloat32s(), want.Contiguous().CopyFloat32s()
	var off, all float64
	for i := range b {
		off += math.Pow(float64(a[i]-b[i]), 2)
		all += math.Pow(float64(b[i]), 2)
	}
	return math.Sqrt(off / all)
}
