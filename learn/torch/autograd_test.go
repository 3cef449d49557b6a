package torch_test

import (
	"math"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestGradientsAreTakenAndPut checks that a gradient that was taken and put has the same bits, whatever the weights
// are, that taking leaves no gradient and no memory, and that Backward adds to a gradient that was put.
func TestGradientsAreTakenAndPut(t *testing.T) {
	e := torchtest.Engine(t)
	want := []float32{1.5, float32(math.Copysign(0, -1)), 0, math.SmallestNonzeroFloat32, math.MaxFloat32, float32(math.Inf(-1)), float32(math.NaN()), 1e-30}
	torchtest.Do(t, e, true, func(s *torch.Scope) error {
		w := s.FromFloat32s([]float32{0, 1, float32(math.Inf(1)), float32(math.NaN()), -1, 2, 3, 1e30}, 2, 4).SetRequiresGrad(true)
		if w.TakeGrad() != nil {
			t.Error("a gradient without Backward")
		}
		w.PutGrad(nil)
		if w.Grad() != nil {
			t.Error("no values made a gradient")
		}
		live := torch.LiveTensors()
		w.PutGrad(want)
		got := w.TakeGrad()
		for i, v := range got {
			if math.Float32bits(v) != math.Float32bits(want[i]) {
				t.Errorf("value %d is %v, want %v", i, v, want[i])
			}
		}
		if torch.LiveTensors() != live || w.Grad() != nil {
			t.Errorf("%d tensors are left, or a gradient", torch.LiveTensors()-live)
		}
		w.PutGrad(got)
		w.Sum().Backward()
		if sum := w.TakeGrad(); sum[0] != 2.5 || sum[1] != 1 {
			t.Errorf("the sum of two gradients is %v", sum)
		}
		return nil
	})
}
