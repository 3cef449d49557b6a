package train

import (
	"math"
	"testing"
)

// TestOptimStats compares the reported statistics of a gradient with sums computed by hand.
func TestOptimStats(t *testing.T) {
	var got []Gradient
	r := statistics{
		parameters: []parameter{{name: "a"}, {name: "b"}},
		report:     func(g Gradient) { got = append(got, g) },
		every:      2,
	}
	gradients := [][]float32{{1, -2}, {0, float32(math.Copysign(0, -1)), -0.5}}
	deltas := [][]float32{{-4}, {8, -8}}
	for step := uint32(1); step <= 2; step++ {
		r.tell(step, 0.25, 3, func() (_, _ [][]float32) { return gradients, deltas })
	}
	r.tell(4, 0.25, 3, func() (_, _ [][]float32) { return gradients, nil })
	if len(got) != 3 || got[0].Tensors != nil || got[0].LR != 0.25 || got[0].Norm != 3 {
		t.Fatalf("notified %+v", got)
	}
	if want := (TensorStats{"a", 3, 4}); got[1].Step != 2 || got[1].Tensors[0] != want {
		t.Errorf("notified %+v", got[1])
	}
	if want := (TensorStats{"b", 0.5, 16}); got[1].Tensors[1] != want {
		t.Errorf("notified %+v", got[1])
	}
	if want := (TensorStats{"b", 0.5, 0}); got[2].Tensors[1] != want {
		t.Errorf("notified %+v", got[2])
	}
	statistics{}.tell(2, 0, 0, func() (_, _ [][]float32) { return gradients, deltas })
}
