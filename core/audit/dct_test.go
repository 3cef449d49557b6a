package audit

import (
	"math"
	"testing"
)

// TestInverseUndoesForward checks that Inverse undoes Forward and keeps lengths, for all edges.
func TestInverseUndoesForward(t *testing.T) {
	for _, edge := range [][2]int{{1, 1}, {1, 64}, {3, 5}, {64, 64}, {128, 7}} {
		x := make([]float64, edge[0]*edge[1])
		for i := range x {
			x[i] = math.Sin(float64(3 * i * i))
		}
		y := forward(x, edge[0], edge[1])
		if math.Abs(length(x)-length(y)) > 1e-9 {
			t.Errorf("%v: length %v became %v", edge, length(x), length(y))
		}
		for i, v := range inverse(y, edge[0], edge[1]) {
			if math.Abs(v-x[i]) > 1e-12 {
				t.Fatalf("%v: element %d is %v, was %v", edge, i, v, x[i])
			}
		}
	}
}

func BenchmarkForward(b *testing.B) {
	x := make([]float64, 64*64)
	for i := range x {
		x[i] = math.Sin(float64(i))
	}
	for b.Loop() {
		forward(x, 64, 64)
	}
}
