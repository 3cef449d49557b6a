package distro

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/distro/codec"
)

// TestMoreChunksThanSixteenBitsCount has a dimension that is a prime above 65,535, so that
// every row is a chunk of its own.
func TestMoreChunksThanSixteenBitsCount(t *testing.T) {
	const rows, cols = 65537, 8
	l := newLayout(t, []int64{rows, cols}, 64)
	if l.Chunks() != rows {
		t.Fatalf("%d chunks, want %d", l.Chunks(), rows)
	}
	kernel, err := NewKernel(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	delta, weights := make([]float32, l.Elements()), make([]float32, l.Elements())
	result, err := kernel.Encode(l, delta, normal(1, l.Elements(), 1), EncodeParams{Decay: 0.9, LR: 1, TopK: 2})
	if err != nil {
		t.Fatal(err)
	}
	layouts := []codec.TensorLayout{l.Codec(2)}
	payload, err := codec.Encode(codec.Header{BatchEnd: 1}, layouts, true, []codec.TensorResult{result})
	if err != nil {
		t.Fatal(err)
	}
	_, decoded, err := codec.Decode(payload, layouts, true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(decoded[0].Indices, result.Indices) {
		t.Error("indices changed on the way")
	}
	if err := kernel.DecodeApply(l, decoded, weights, ApplyParams{LR: 1, WeightFactor: 1}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(weights[(rows-1)*cols:], func(w float32) bool { return w != 0 }) {
		t.Error("the last chunk was not applied")
	}
}

// TestLinearUpdateHasTheLengthOfTheLearningRate checks direction and length, and that
// neither the size of values nor opposite signs break it.
func TestLinearUpdateHasTheLengthOfTheLearningRate(t *testing.T) {
	const lr = 0.25
	l := newLayout(t, []int64{64, 64}, 64)
	for _, kernel := range kernels(t) {
		for _, scale := range []float32{1e-40, 1, 1e30} {
			result := randomEntries(l, 8, scale)
			weights, direction := make([]float32, l.Elements()), make([]float32, l.Elements())
			if err := kernel.DecodeApply(l, []codec.TensorResult{result, result}, weights, ApplyParams{LR: lr, WeightFactor: 0.5, Linear: true}); err != nil {
				t.Fatal(err)
			}
			if err := kernel.AddBack(l, direction, randomEntries(l, 8, 1)); err != nil {
				t.Fatal(err)
			}
			var squares, product, length float64
			for i, w := range weights {
				squares += float64(w) * float64(w)
				product += float64(w) * float64(direction[i])
				length += float64(direction[i]) * float64(direction[i])
			}
			if mean := squares / float64(l.Elements()); mean < lr*lr*0.9999 || mean > lr*lr*1.0001 {
				t.Errorf("%s, scale %g: mean square %v, want %v", kernel.ISA(), scale, mean, lr*lr)
			}
			if product*product < 0.999*squares*length || product > 0 {
				t.Errorf("%s, scale %g: not against the coefficients", kernel.ISA(), scale)
			}
		}
		one, other := randomEntries(l, 8, 1), randomEntries(l, 8, -1)
		weights := make([]float32, l.Elements())
		if err := kernel.DecodeApply(l, []codec.TensorResult{one, other}, weights, ApplyParams{LR: lr, WeightFactor: 1, Linear: true}); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(weights, func(w float32) bool { return w != 0 }) {
			t.Errorf("%s: opposite results move weights", kernel.ISA())
		}
	}
}

// randomEntries fills every chunk; the same coefficients for every scale.
func randomEntries(l Layout, k int, scale float32) codec.TensorResult {
	random := rand.New(rand.NewPCG(3, 0))
	r := l.Codec(k).NewResult()
	for c := range r.Counts {
		r.Counts[c] = uint16(k)
		for i := range k {
			r.Indices[c*k+i] = uint16(i*l.ChunkSize()/k + random.IntN(l.ChunkSize()/k))
			r.Values[c*k+i] = scale * float32(1+random.IntN(9))
		}
	}
	return r
}
