package distro

import (
	"math"
	"math/rand/v2"
	"testing"
)

// exactDCT computes the orthonormal DCT-II by its formula, in double precision.
func exactDCT(x []float64) []float64 {
	n := len(x)
	out := make([]float64, n)
	for k := range n {
		scale := math.Sqrt(2 / float64(n))
		if k == 0 {
			scale = math.Sqrt(1 / float64(n))
		}
		for i, v := range x {
			out[k] += scale * v * math.Cos(math.Pi*float64(2*i+1)*float64(k)/float64(2*n))
		}
	}
	return out
}

func TestTransformsOfEverySize(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	worst, worstBack := 0.0, 0.0
	for n := 1; n <= MaxChunk; n++ {
		table := cosineTables[n]()
		x, scratch, wide := make([]float32, n), make([]float32, n), make([]float64, n)
		for i := range x {
			x[i] = float32(random.NormFloat64())
			wide[i] = float64(x[i])
		}
		original := append([]float32(nil), x...)
		table.forward(x, scratch)
		peak := 0.0
		for _, v := range exactDCT(wide) {
			peak = max(peak, math.Abs(v))
		}
		for k, want := range exactDCT(wide) {
			worst = max(worst, math.Abs(float64(x[k])-want)/peak)
		}
		table.inverse(x, scratch)
		for i := range x {
			worstBack = max(worstBack, math.Abs(float64(x[i]-original[i])))
		}
	}
	t.Logf("largest error of a coefficient %.2g of the largest one, of a round trip %.2g", worst, worstBack)
	if worst > 2e-6 || worstBack > 1e-5 {
		t.Errorf("errors %.2g and %.2g are more than rounding", worst, worstBack)
	}
}

// TestTablesAreTheCosines compares the constants with the formula in double precision. The
// formula's error is less than half a unit in the last place of single precision.
func TestTablesAreTheCosines(t *testing.T) {
	near := func(got float32, want float64) bool {
		return math.Abs(float64(got)-want) <= 1.01*0x1p-24*math.Abs(want)+1e-15
	}
	for n := 1; n <= MaxChunk; n++ {
		table := cosineTables[n]()
		for k := range n {
			scale := math.Sqrt(2 / float64(n))
			if k == 0 {
				scale = math.Sqrt(1 / float64(n))
			}
			for i := range padded(n) {
				want := scale * math.Cos(math.Pi*float64((2*i+1)*k%(4*n))/float64(2*n))
				if i >= n {
					want = 0
				}
				if got := table.basis[k*padded(n)+i]; !near(got, want) {
					t.Fatalf("n %d: basis[%d][%d] = %v, want %v", n, k, i, got, want)
				}
			}
		}
		if !near(table.mean, math.Sqrt(1/float64(n))) || !near(table.scale, math.Sqrt(2/float64(n))) {
			t.Fatalf("n %d: scales %v, %v", n, table.mean, table.scale)
		}
	}
	for n := 2; n <= MaxChunk; n *= 2 {
		for i, got := range secants()[n/2 : n] {
			if want := 0.5 / math.Cos(math.Pi*(float64(i)+0.5)/float64(n)); !near(got, want) {
				t.Fatalf("n %d: secant %d = %v, want %v", n, i, got, want)
			}
		}
	}
}
