package distro

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
)

// TestHugeValuesMoveAllKernelsAlike applies results with finite values that overflow in their sum
// or in the inverse transform. No kernel may differ from the reference, and no weight may become
// NaN.
func TestHugeValuesMoveAllKernelsAlike(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][]int64{{64, 64}, {24, 40}, {100}, {7, 13}, {128, 128}} {
		l := newLayout(t, shape, 64)
		for trial := range 12 {
			var results []codec.TensorResult
			for range 1 + trial%4 {
				results = append(results, hugeResult(r, l.Codec(8)))
			}
			var want []float32
			for _, kernel := range kernels(t) {
				weights := make([]float32, l.Elements())
				for i := range weights {
					weights[i] = float32(i)
				}
				if err := kernel.DecodeApply(l, results, weights, ApplyParams{LR: 1, WeightFactor: 1}); err != nil {
					t.Fatal(err)
				}
				if want == nil {
					want = weights
				}
				for i := range weights {
					if math.Float32bits(weights[i]) != math.Float32bits(want[i]) || weights[i] != weights[i] {
						t.Fatalf("shape %v, trial %d: %s makes weight %d %v, the reference %v", shape, trial, kernel.ISA(), i, weights[i], want[i])
					}
				}
			}
		}
	}
}

// hugeResult returns a valid result with the largest possible values at random positions.
func hugeResult(r *rand.Rand, of codec.TensorLayout) codec.TensorResult {
	result := of.NewResult()
	for c := range of.Chunks {
		n := min(of.K, of.ChunkSize)
		chosen := make(map[int]bool)
		for _, i := range r.Perm(of.ChunkSize)[:n] {
			chosen[i] = true
		}
		at := c * of.K
		for i := range of.ChunkSize {
			if !chosen[i] {
				continue
			}
			v := float32(math.MaxFloat32)
			if r.IntN(4) == 0 {
				v *= float32(r.Float64())
			}
			if r.IntN(2) == 0 {
				v = -v
			}
			result.Indices[at], result.Values[at] = uint16(i), v
			at++
		}
		result.Counts[c] = uint16(n)
	}
	return result
}
