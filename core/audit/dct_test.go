package audit

import (
	"math"
	"testing"
)

// TestInverseUndoesForward and keeps lengths, for edges that are and are not powers of two.
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

// TestFoldingIsTheDefinition compares with the sums.
func TestFoldingIsTheDefinition(t *testing.T) {
	for n := 1; n <= MaxEdge; n *= 2 {
		x, want := make([]float64, n), make([]float64, n)
		for i := range x {
			x[i] = math.Sin(float64(3*i*i + 1))
		}
		for _, back := range []bool{false, true} {
			bySums(want, x, bases[n](), back)
			got := transposed(x, 1, n, bases[n](), back)
			for i := range want {
				if math.Abs(got[i]-want[i]) > 1e-12 {
					t.Fatalf("%d points, back %v: value %d is %v, want %v", n, back, i, got[i], want[i])
				}
			}
		}
	}
}

func TestLeastOfTheLargest(t *testing.T) {
	x := make([]float64, 50)
	for i := range x {
		x[i] = math.Pow(-1, float64(i)) * float64(i*37%50)
	}
	for k := 1; k <= len(x); k++ {
		if got, want := leastOf(x, k), float64(len(x)-k); got != want {
			t.Errorf("the least of the %d largest is %v, want %v", k, got, want)
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
