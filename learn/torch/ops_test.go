package torch_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

func TestOperations(t *testing.T) {
	e := torchtest.Engine(t)
	type T = *torch.Tensor
	// a is [[1,2,3],[4,5,6]], b is [[-2,0,0.25],[1,-1,2]].
	tests := []struct {
		name  string
		run   func(s *torch.Scope, a, b T) T
		shape []int64
		want  []float32
	}{
		{"Add", func(_ *torch.Scope, a, b T) T { return a.Add(b) }, []int64{2, 3}, []float32{-1, 2, 3.25, 5, 4, 8}},
		{"Sub", func(_ *torch.Scope, a, b T) T { return a.Sub(b) }, []int64{2, 3}, []float32{3, 2, 2.75, 3, 6, 4}},
		{"AddScaled", func(_ *torch.Scope, a, b T) T { return a.AddScaled(b, 2) }, []int64{2, 3}, []float32{-3, 2, 3.5, 6, 3, 10}},
		{"Mul", func(_ *torch.Scope, a, b T) T { return a.Mul(b) }, []int64{2, 3}, []float32{-2, 0, 0.75, 4, -5, 12}},
		{"Div", func(_ *torch.Scope, a, b T) T { return b.Div(a) }, []int64{2, 3}, []float32{-2, 0, 0.25 / 3, 0.25, -0.2, 2.0 / 6}},
		{"AddScalar", func(_ *torch.Scope, a, _ T) T { return a.AddScalar(1) }, []int64{2, 3}, []float32{2, 3, 4, 5, 6, 7}},
		{"MulScalar", func(_ *torch.Scope, a, _ T) T { return a.MulScalar(-2) }, []int64{2, 3}, []float32{-2, -4, -6, -8, -10, -12}},
		{"EqScalar", func(_ *torch.Scope, a, _ T) T { return a.EqScalar(3).To(torch.F32) }, []int64{2, 3}, []float32{0, 0, 1, 0, 0, 0}},
		{"Neg", func(_ *torch.Scope, _, b T) T { return b.Neg().AddScalar(0) }, []int64{2, 3}, []float32{2, 0, -0.25, -1, 1, -2}},
		{"Sign", func(_ *torch.Scope, _, b T) T { return b.Sign() }, []int64{2, 3}, []float32{-1, 0, 1, 1, -1, 1}},
		{"Log", func(_ *torch.Scope, a, _ T) T { return a.Log() }, []int64{2, 3}, []float32{0, 0.693147, 1.098612, 1.386294, 1.609438, 1.791759}},
		{"Sqrt", func(_ *torch.Scope, a, _ T) T { return a.Sqrt() }, []int64{2, 3}, []float32{1, 1.414214, 1.732051, 2, 2.236068, 2.449490}},
		{"Sin and Cos", func(_ *torch.Scope, a, _ T) T { sin, cos := a.Sin(), a.Cos(); return sin.Mul(sin).Add(cos.Mul(cos)) }, []int64{2, 3}, []float32{1, 1, 1, 1, 1, 1}},
		{"Matmul", func(_ *torch.Scope, a, b T) T { return a.Matmul(b.Transpose(0, 1)) }, []int64{2, 2}, []float32{-1.25, 5, -6.5, 11}},
		{"Linear", func(_ *torch.Scope, a, b T) T { return a.Linear(b) }, []int64{2, 2}, []float32{-1.25, 5, -6.5, 11}},
		{"Embedding", func(s *torch.Scope, a, _ T) T { return a.Embedding(s.FromInt32s([]int32{1, 1}, 2)) }, []int64{2, 3}, []float32{4, 5, 6, 4, 5, 6}},
		{"Sum", func(_ *torch.Scope, a, _ T) T { return a.Sum() }, nil, []float32{21}},
		{"Mean", func(_ *torch.Scope, a, _ T) T { return a.Mean() }, nil, []float32{3.5}},
		{"SumDim", func(_ *torch.Scope, a, _ T) T { return a.SumDim(0, true) }, []int64{1, 3}, []float32{5, 7, 9}},
		{"MeanDim", func(_ *torch.Scope, a, _ T) T { return a.MeanDim(-1, false) }, []int64{2}, []float32{2, 5}},
		{"Softmax", func(_ *torch.Scope, a, _ T) T { return a.Softmax(1).SumDim(1, false) }, []int64{2}, []float32{1, 1}},
		{"Reshape", func(_ *torch.Scope, a, _ T) T { return a.Reshape(3, -1) }, []int64{3, 2}, []float32{1, 2, 3, 4, 5, 6}},
		{"Permute", func(_ *torch.Scope, a, _ T) T { return a.Permute(1, 0).Contiguous() }, []int64{3, 2}, []float32{1, 4, 2, 5, 3, 6}},
		{"Squeeze", func(_ *torch.Scope, a, _ T) T { return a.Unsqueeze(0).Unsqueeze(-1).Squeeze(0) }, []int64{2, 3, 1}, []float32{1, 2, 3, 4, 5, 6}},
		{"Expand", func(_ *torch.Scope, a, _ T) T { return a.Narrow(0, 1, 1).Expand(2, -1).Contiguous() }, []int64{2, 3}, []float32{4, 5, 6, 4, 5, 6}},
		{"Gather", func(s *torch.Scope, a, _ T) T { return a.Gather(1, s.FromInt64s([]int64{2, 0}, 2, 1)) }, []int64{2, 1}, []float32{3, 4}},
		{"IndexSelect", func(s *torch.Scope, a, _ T) T { return a.IndexSelect(1, s.FromInt64s([]int64{2, 0}, 2)) }, []int64{2, 2}, []float32{3, 1, 6, 4}},
		{"MaskedFill", func(_ *torch.Scope, a, b T) T { return a.MaskedFill(b.EqScalar(0), 9) }, []int64{2, 3}, []float32{1, 9, 3, 4, 5, 6}},
		{"Triu", func(_ *torch.Scope, a, _ T) T { return a.Triu(1) }, []int64{2, 3}, []float32{0, 2, 3, 0, 0, 6}},
		{"Cat", func(s *torch.Scope, a, b T) T { return s.Cat(0, a.Narrow(0, 0, 1), b.Narrow(0, 1, 1)) }, []int64{2, 3}, []float32{1, 2, 3, 1, -1, 2}},
		{"AddInPlace", func(_ *torch.Scope, a, b T) T { return a.AddInPlace(b, 4) }, []int64{2, 3}, []float32{-7, 2, 4, 8, 1, 14}},
		{"MulScalarInPlace", func(_ *torch.Scope, a, _ T) T { return a.MulScalarInPlace(2) }, []int64{2, 3}, []float32{2, 4, 6, 8, 10, 12}},
		{"LerpInPlace", func(_ *torch.Scope, a, b T) T { return a.LerpInPlace(b, 0.5) }, []int64{2, 3}, []float32{-0.5, 1, 1.625, 2.5, 2, 4}},
		{"CopyFrom", func(s *torch.Scope, a, _ T) T { return a.CopyFrom(s.FromInt64s([]int64{0, 1, 2, 3, 4, 5}, 2, 3)) }, []int64{2, 3}, []float32{0, 1, 2, 3, 4, 5}},
		{"Clone", func(_ *torch.Scope, a, _ T) T { c := a.Clone(); a.MulScalarInPlace(0); return c.AddInPlace(a, 1) }, []int64{2, 3}, []float32{1, 2, 3, 4, 5, 6}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			torchtest.Do(t, e, false, func(s *torch.Scope) error {
				a := s.FromFloat32s([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
				b := s.FromFloat32s([]float32{-2, 0, 0.25, 1, -1, 2}, 2, 3)
				got := test.run(s, a, b)
				if shape := got.Shape(); !slices.Equal(shape, test.shape) {
					t.Fatalf("shape %v, want %v", shape, test.shape)
				}
				for i, v := range got.CopyFloat32s() {
					if math.Abs(float64(v-test.want[i])) > 1e-5 {
						t.Errorf("element %d is %v, want %v", i, v, test.want[i])
					}
				}
				return nil
			})
		})
	}
}

func TestNormAndAllFinite(t *testing.T) {
	e := torchtest.Engine(t)
	torchtest.Do(t, e, false, func(s *torch.Scope) error {
		a, b := s.Full(torch.F32, 3, 1), s.Full(torch.F32, 4, 1)
		if got := s.Norm(a, b); math.Abs(got-5) > 1e-6 {
			t.Errorf("norm %v, want 5", got)
		}
		if !s.AllFinite(a, b) || s.AllFinite(a, s.Full(torch.F32, math.Inf(1), 2)) || s.AllFinite(s.Full(torch.F32, math.NaN(), 1)) {
			t.Error("AllFinite is wrong")
		}
		return nil
	})
}

func TestConversions(t *testing.T) {
	e := torchtest.Engine(t)
	torchtest.Do(t, e, false, func(s *torch.Scope) error {
		values := []float32{0, 1, -2, 100}
		for _, dtype := range []torch.DType{torch.F32, torch.BF16, torch.F16, torch.F64, torch.I64, torch.I32} {
			x := s.FromFloat32s(values, 2, 2).To(dtype)
			if x.DType() != dtype || x.Numel() != 4 || x.Dim(-1) != 2 || x.Device() != torch.CPU {
				t.Errorf("%s was not requested", x)
			}
			if got := len(x.Bytes()); got != 4*dtype.Size() {
				t.Errorf("%s has %d bytes", x, got)
			}
			back := s.FromBytes(x.Bytes(), dtype, 2, 2)
			if got := back.CopyFloat32s(); !slices.Equal(got, values) {
				t.Errorf("through %s: %v, want %v", dtype, got, values)
			}
		}
		if got, want := fmt.Sprint(s.Zeros(torch.BF16, 2, 0)), "bf16[2 0] on cpu"; got != want {
			t.Errorf("String gives %q, want %q", got, want)
		}
		x := s.Zeros(torch.F32, 2)
		x.Float32s()[1] = 5
		if x.Sum().Item() != 5 {
			t.Error("writing through Float32s did not change the tensor")
		}
		return nil
	})
}
