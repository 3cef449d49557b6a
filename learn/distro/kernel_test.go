package distro

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro/distrotest"
)

// kernels returns one kernel for each available instruction set and thread count. The reference
// comes first.
func kernels(t testing.TB) []*Kernel {
	t.Helper()
	var all []*Kernel
	for _, set := range availableISAs() {
		for _, threads := range []int{1, 2} {
			kernel, err := NewKernel(Options{ISA: set.name, Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, kernel)
		}
	}
	return all
}

func newLayout(t testing.TB, shape []int64, chunk int) Layout {
	t.Helper()
	l, err := NewLayout(shape, chunk)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func normal(seed uint64, n int, scale float64) []float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(scale * random.NormFloat64())
	}
	return x
}

// bitsOf hashes numbers by their bits, so that 0 and −0 differ.
func bitsOf(parts ...any) string {
	h := sha256.New()
	for _, part := range parts {
		if err := binary.Write(h, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// train runs some rounds of three trainers on one tensor and hashes their state.
func train(t testing.TB, kernel *Kernel, l Layout, topK, rounds int) string {
	t.Helper()
	n := l.Elements()
	weights := normal(99, n, 0.02)
	deltas := [3][]float32{make([]float32, n), make([]float32, n), make([]float32, n)}
	var trace []string
	for round := range rounds {
		var results []codec.TensorResult
		for i, delta := range deltas {
			grad := normal(uint64(1000*round+i), n, math.Pow(10, float64(i)-2))
			result, err := kernel.Encode(l, delta, grad, EncodeParams{Decay: 0.9, LR: 0.013, TopK: topK, Floor: 0.03})
			if err != nil {
				t.Fatal(err)
			}
			trace = append(trace, bitsOf(result.Counts, result.Indices, result.Values, delta))
			results = append(results, result)
		}
		// Values in one round, signs in the next.
		if round%2 == 1 {
			for _, r := range results {
				distrotest.ToSigns(r)
			}
		}
		if err := kernel.DecodeApply(l, results, weights, ApplyParams{LR: 0.013, WeightFactor: 1 - 0.013*0.1*float32(round)}); err != nil {
			t.Fatal(err)
		}
		if err := kernel.AddBack(l, deltas[0], results[1]); err != nil {
			t.Fatal(err)
		}
		trace = append(trace, bitsOf(weights, deltas[0]))
	}
	return fmt.Sprint(trace)
}

// TestSumsOfSquaresHaveTheBitsOfTheReference checks that sums over a whole tensor have the same
// bits on every machine, for any length.
func TestSumsOfSquaresHaveTheBitsOfTheReference(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 15, 16, 127, 128, 129, 513, 1<<15 + 3, 1<<17 + 77} {
		delta, grad := normal(uint64(n), n, 1), normal(uint64(n)+1, n, 0.1)
		want := ""
		for _, kernel := range kernels(t) {
			got := bitsOf(kernel.norm([][]float32{delta, grad[:n/2], nil}), kernel.Floor(delta, grad, EncodeParams{Decay: 0.9, LR: 0.013}))
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%d values: %s with %d threads has different bits", n, kernel.ISA(), kernel.threads)
			}
		}
	}
}

func TestEveryKernelHasTheBitsOfTheReference(t *testing.T) {
	for _, c := range distrotest.Shapes {
		if testing.Short() && len(c.Shape) == 2 && c.Shape[1] > 1024 {
			continue // slow with the race detector
		}
		t.Run(fmt.Sprintf("%v by %d top %d", c.Shape, c.Chunk, c.TopK), func(t *testing.T) {
			l := newLayout(t, c.Shape, c.Chunk)
			want := ""
			for _, kernel := range kernels(t) {
				got := train(t, kernel, l, c.TopK, 2)
				if want == "" {
					want = got
				}
				if got != want {
					t.Errorf("%s with %d threads:\n%s\nreference:\n%s", kernel.ISA(), kernel.threads, got, want)
				}
			}
		})
	}
}

// TestEncodeToKeepsTheOldMomentum compares EncodeTo with Encode: it writes every element of the new
// momentum, and changes no element of the old one, also if a gradient is not finite.
func TestEncodeToKeepsTheOldMomentum(t *testing.T) {
	for _, c := range distrotest.Shapes {
		l := newLayout(t, c.Shape, c.Chunk)
		if l.Elements() > 1<<20 {
			continue
		}
		for _, kernel := range kernels(t) {
			p := EncodeParams{Decay: 0.9, LR: 0.1, TopK: c.TopK}
			delta, grad := normal(1, l.Elements(), 1), normal(2, l.Elements(), 1)
			old, left := slices.Clone(delta), make([]float32, len(delta))
			for i := range left {
				left[i] = float32(math.NaN())
			}
			got, err := kernel.EncodeTo(l, delta, left, grad, p)
			if err != nil || bitsOf(delta) != bitsOf(old) {
				t.Fatalf("%v: %s: error %v, momentum changed %v", c.Shape, kernel.ISA(), err, bitsOf(delta) != bitsOf(old))
			}
			grad[len(grad)-1] = float32(math.Inf(1))
			if _, err := kernel.EncodeTo(l, delta, make([]float32, len(delta)), grad, p); !errors.Is(err, ErrNotFinite) || bitsOf(delta) != bitsOf(old) {
				t.Errorf("%v: %s: error %v, momentum changed %v", c.Shape, kernel.ISA(), err, bitsOf(delta) != bitsOf(old))
			}
			want, err := kernel.Encode(l, delta, normal(2, l.Elements(), 1), p)
			if err != nil || bitsOf(left, got.Counts, got.Indices, got.Values) != bitsOf(delta, want.Counts, want.Indices, want.Values) {
				t.Errorf("%v: %s: EncodeTo has other bits than Encode (%v)", c.Shape, kernel.ISA(), err)
			}
		}
	}
}

// TestTiesGoToTheLowestIndex uses chunks of two columns whose only nonzero row is {1, 0}. Both
// columns of the coefficients are then equal in every bit.
func TestTiesGoToTheLowestIndex(t *testing.T) {
	for _, topK := range []int{1, 2, 3, 7, 64, 65, 99, 127, 128} {
		l := newLayout(t, []int64{64, 2}, 64)
		for _, kernel := range kernels(t) {
			grad := make([]float32, l.Elements())
			grad[0] = 1
			got, err := kernel.Encode(l, make([]float32, l.Elements()), grad, EncodeParams{Decay: 1, LR: 1, TopK: topK})
			if err != nil {
				t.Fatal(err)
			}
			if int(got.Counts[0]) != topK {
				t.Fatalf("%s: top %d sends %d", kernel.ISA(), topK, got.Counts[0])
			}
			sent := map[uint16]bool{}
			for _, index := range got.Indices {
				sent[index] = true
			}
			alone := 0
			for index := range sent {
				if !sent[index^1] {
					alone++
					if index%2 != 0 {
						t.Errorf("%s: top %d: sends %d but not its equal %d", kernel.ISA(), topK, index, index-1)
					}
				}
			}
			if alone != topK%2 {
				t.Errorf("%s: top %d: %d equal pairs were separated", kernel.ISA(), topK, alone)
			}
		}
	}
}

// TestSelectionHasTheBitsOfTheReference draws tensors of few different values, so that chunks have
// many equal coefficients and many zeros, and numbers of coefficients from 1 to the whole chunk.
func TestSelectionHasTheBitsOfTheReference(t *testing.T) {
	all := kernels(t)
	rapid.Check(t, func(t *rapid.T) {
		l, err := NewLayout([]int64{rapid.Int64Range(1, 70).Draw(t, "rows"), rapid.Int64Range(1, 70).Draw(t, "cols")}, rapid.SampledFrom([]int{2, 8, 16, 32, 64}).Draw(t, "chunk"))
		if err != nil {
			t.Fatal(err)
		}
		p := EncodeParams{Decay: 1, LR: 1, TopK: rapid.IntRange(1, l.ChunkSize()).Draw(t, "k")}
		kinds := rapid.SampledFrom([][]float32{{0, 1}, {0, 0, 0, 1, -1}, {1, 1e-20, -1e-30}, {0.5, -3, 7}}).Draw(t, "values")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		grad := make([]float32, l.Elements())
		for i := range grad {
			grad[i] = kinds[random.IntN(len(kinds))]
		}
		want := ""
		for _, kernel := range all {
			delta := make([]float32, len(grad))
			r, err := kernel.Encode(l, delta, grad, p)
			if err != nil {
				t.Fatal(err)
			}
			got := bitsOf(r.Counts, r.Indices, r.Values, delta)
			if want == "" {
				want = got
			}
			if got != want {
				t.Fatalf("%s with %d threads has different bits", kernel.ISA(), kernel.threads)
			}
		}
	})
}

func TestZerosAreNotSent(t *testing.T) {
	l := newLayout(t, []int64{64, 128}, 64)
	for _, kernel := range kernels(t) {
		delta, grad := make([]float32, l.Elements()), make([]float32, l.Elements())
		result, err := kernel.Encode(l, delta, grad, EncodeParams{Decay: 0.9, LR: 1, TopK: 8})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(result.Counts, []uint16{0, 0}) {
			t.Errorf("%s: a cold start sends %v entries", kernel.ISA(), result.Counts)
		}
		// A constant chunk has exactly one coefficient.
		for i := range l.Elements() {
			if i%128 < 64 {
				grad[i] = 1
			}
		}
		result, err = kernel.Encode(l, delta, grad, EncodeParams{Decay: 0.9, LR: 0.5, TopK: 8})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(result.Counts, []uint16{1, 0}) || result.Indices[0] != 0 || result.Values[0] != 32 {
			t.Errorf("%s: constant chunk: %v %v %v", kernel.ISA(), result.Counts, result.Indices[:8], result.Values[:8])
		}
		if slices.ContainsFunc(delta, func(v float32) bool { return v != 0 }) {
			t.Errorf("%s: the residual of a chunk that was sent whole is not zero", kernel.ISA())
		}
		weights := normal(5, l.Elements(), 1)
		before := slices.Clone(weights)
		if err := kernel.DecodeApply(l, []codec.TensorResult{result}, weights, ApplyParams{LR: 0.25, WeightFactor: 1}); err != nil {
			t.Fatal(err)
		}
		for i := range weights {
			want := before[i]
			if i%128 < 64 {
				want -= 0.25
			}
			if weights[i] != want {
				t.Fatalf("%s: weight %d: %v, want %v", kernel.ISA(), i, weights[i], want)
			}
		}
	}
}

func TestOppositeSignsCancel(t *testing.T) {
	l := newLayout(t, []int64{8}, 8)
	for _, kernel := range kernels(t) {
		a, b := l.Codec(1).NewResult(), l.Codec(1).NewResult()
		a.Counts[0], a.Indices[0], a.Values[0] = 1, 3, 1
		b.Counts[0], b.Indices[0], b.Values[0] = 1, 3, -1
		weights := normal(1, 8, 1)
		want := slices.Clone(weights)
		if err := kernel.DecodeApply(l, []codec.TensorResult{a, b}, weights, ApplyParams{LR: 1, WeightFactor: 1}); err != nil {
			t.Fatal(err)
		}
		if bitsOf(weights) != bitsOf(want) {
			t.Errorf("%s: weights moved: %v, want %v", kernel.ISA(), weights, want)
		}
	}
}

// TestOrderOfSignsDoesNotMatter checks that sums of signs are exact in any order.
func TestOrderOfSignsDoesNotMatter(t *testing.T) {
	kernel, err := NewKernel(Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := newLayout(t, []int64{16, 16}, rapid.SampledFrom([]int{4, 8, 12, 16}).Draw(rt, "chunk"))
		var results []codec.TensorResult
		var votes Votes
		for i := range rapid.IntRange(1, 9).Draw(rt, "senders") {
			votes = append(votes, rapid.Uint8Range(1, 16).Draw(rt, "vote"))
			delta := make([]float32, l.Elements())
			grad := normal(rapid.Uint64().Draw(rt, "seed")+uint64(i), l.Elements(), 1)
			r, err := kernel.Encode(l, delta, grad, EncodeParams{Decay: 1, LR: 1, TopK: 6})
			if err != nil {
				rt.Fatal(err)
			}
			distrotest.ToSigns(r)
			results = append(results, r)
		}
		order := make([]int, len(results))
		for i := range order {
			order[i] = i
		}
		update := func(order []int) string {
			weights, p := make([]float32, l.Elements()), ApplyParams{LR: 1, WeightFactor: 1}
			var ordered []codec.TensorResult
			for _, i := range order {
				ordered, p.Votes = append(ordered, results[i]), append(p.Votes, votes[i])
			}
			if err := kernel.DecodeApply(l, ordered, weights, p); err != nil {
				rt.Fatal(err)
			}
			return bitsOf(weights)
		}
		want := update(order)
		if got := update(rapid.Permutation(order).Draw(rt, "order")); got != want {
			rt.Errorf("a different order of the results gave different weights")
		}
	})
}

func TestEncodeThenAddBackIsTheMomentum(t *testing.T) {
	l := newLayout(t, []int64{96, 100}, 64)
	for _, kernel := range kernels(t) {
		delta, grad := normal(1, l.Elements(), 1), normal(2, l.Elements(), 1)
		want := make([]float64, l.Elements())
		for i := range want {
			want[i] = 0.9*float64(delta[i]) + 0.1*float64(grad[i])
		}
		result, err := kernel.Encode(l, delta, grad, EncodeParams{Decay: 0.9, LR: 0.1, TopK: 16})
		if err != nil {
			t.Fatal(err)
		}
		if err := kernel.AddBack(l, delta, result); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(float64(delta[i])-want[i]) > 1e-5 {
				t.Fatalf("%s: momentum %d: %v, want %v", kernel.ISA(), i, delta[i], want[i])
			}
		}
	}
}

func TestNumbersThatAreNotFinite(t *testing.T) {
	l := newLayout(t, []int64{64, 256}, 64)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, kernel := range kernels(t) {
		for _, bad := range []float32{nan, inf, -inf, math.MaxFloat32} {
			delta, grad := normal(1, l.Elements(), 1), normal(2, l.Elements(), 1)
			grad[200], grad[201] = bad, bad
			before := slices.Clone(delta)
			_, err := kernel.Encode(l, delta, grad, EncodeParams{Decay: 0.9, LR: 0.9, TopK: 4})
			if !errors.Is(err, ErrNotFinite) {
				t.Errorf("%s: gradient %v: error %v", kernel.ISA(), bad, err)
			}
			for i := range delta {
				if i%256/64 == 3 && delta[i] != before[i] {
					t.Fatalf("%s: gradient %v: momentum %d of the refused chunk changed", kernel.ISA(), bad, i)
				}
			}
		}
	}
}

func TestArgumentsThatDoNotFit(t *testing.T) {
	l := newLayout(t, []int64{8, 8}, 8)
	kernel, err := NewKernel(Options{})
	if err != nil {
		t.Fatal(err)
	}
	full := make([]float32, 64)
	good := EncodeParams{Decay: 0.9, LR: 1, TopK: 2}
	for name, call := range map[string]func() error{
		"few momenta":   func() error { _, err := kernel.Encode(l, full[:63], full, good); return err },
		"few gradients": func() error { _, err := kernel.Encode(l, full, full[:63], good); return err },
		"top-k 0":       func() error { _, err := kernel.Encode(l, full, full, EncodeParams{LR: 1}); return err },
		"few weights":   func() error { return kernel.DecodeApply(l, nil, full[:1], ApplyParams{WeightFactor: 1}) },
		"no factor":     func() error { return kernel.DecodeApply(l, nil, full, ApplyParams{}) },
		"large factor":  func() error { return kernel.DecodeApply(l, nil, full, ApplyParams{WeightFactor: 1.5}) },
		"few votes": func() error {
			return kernel.DecodeApply(l, nil, full, ApplyParams{WeightFactor: 1, Votes: Votes{1}})
		},
		"no vote": func() error {
			return kernel.DecodeApply(l, []codec.TensorResult{l.Codec(1).NewResult()}, full, ApplyParams{WeightFactor: 1, Votes: Votes{0}})
		},
		"large vote": func() error {
			return kernel.DecodeApply(l, []codec.TensorResult{l.Codec(1).NewResult()}, full, ApplyParams{WeightFactor: 1, Votes: Votes{17}})
		},
		"negative rate":  func() error { return kernel.DecodeApply(l, nil, full, ApplyParams{LR: -1, WeightFactor: 1}) },
		"empty result":   func() error { return kernel.AddBack(l, full, codec.TensorResult{}) },
		"few to give to": func() error { return kernel.AddBack(l, full[:2], l.Codec(1).NewResult()) },
		"index past the chunk": func() error {
			r := l.Codec(1).NewResult()
			r.Counts[0], r.Indices[0], r.Values[0] = 1, 64, 1
			return kernel.DecodeApply(l, []codec.TensorResult{r}, full, ApplyParams{LR: 1, WeightFactor: 1})
		},
		"value not finite": func() error {
			r := l.Codec(1).NewResult()
			r.Counts[0], r.Values[0] = 1, float32(math.Inf(1))
			return kernel.DecodeApply(l, []codec.TensorResult{r}, full, ApplyParams{LR: 1, WeightFactor: 1})
		},
	} {
		if err := call(); !errors.Is(err, ErrInput) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := kernel.Encode(l, full, full, EncodeParams{Decay: float32(math.NaN()), LR: 1, TopK: 1}); !errors.Is(err, ErrNotFinite) {
		t.Errorf("decay NaN: error %v", err)
	}
	if slices.ContainsFunc(full, func(v float32) bool { return v != 0 }) {
		t.Error("a refused call changed its argument")
	}
}

func TestISAByEnvironment(t *testing.T) {
	for _, set := range availableISAs() {
		t.Setenv(envISA, set.name)
		kernel, err := NewKernel(Options{})
		if err != nil || kernel.ISA() != set.name {
			t.Errorf("%s=%s: kernel %v, error %v", envISA, set.name, kernel, err)
		}
	}
	t.Setenv(envISA, "mmx")
	if _, err := NewKernel(Options{}); !errors.Is(err, ErrInput) {
		t.Errorf("unknown instruction set: error %v", err)
	}
}

// TestMomentumEnds stops the gradients. The remaining momentum must become zero, and Encode must
// stop sending it, long before the numbers are so small that they lose bits.
func TestMomentumEnds(t *testing.T) {
	l := newLayout(t, []int64{48, 67}, 64)
	for _, kernel := range kernels(t) {
		delta, p := normal(1, l.Elements(), 1), EncodeParams{Decay: 0.5, LR: 1, TopK: 3}
		none := make([]float32, l.Elements())
		for range 110 {
			if _, err := kernel.Encode(l, delta, none, p); err != nil {
				t.Fatal(err)
			}
		}
		got, err := kernel.Encode(l, delta, none, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, count := range got.Counts {
			if count != 0 {
				t.Fatalf("%s: sends %d coefficients of the remainder after 110 halvings", kernel.ISA(), count)
			}
		}
		for i, v := range delta {
			if math.Float32bits(v) != 0 {
				t.Fatalf("%s: element %d is %g", kernel.ISA(), i, v)
			}
		}
	}
}

// TestSmallMomentumIsFlushed tests values around the limit, and that NaN and infinity are not
// hidden.
func TestSmallMomentumIsFlushed(t *testing.T) {
	l := newLayout(t, []int64{67}, 67)
	for _, kernel := range kernels(t) {
		delta, grad := make([]float32, 67), make([]float32, 67)
		for i := range grad {
			grad[i] = math.Nextafter32(0x1p-100, 0) // below the limit: in vectors and in the remainder after them
		}
		grad[0], grad[66] = 0x1p-100, -0x1p-100
		if _, err := kernel.Encode(l, delta, grad, EncodeParams{Decay: 1, LR: 1, TopK: 67}); err != nil {
			t.Fatal(err)
		}
		clear(delta)
		got, err := kernel.Encode(l, delta, grad, EncodeParams{LR: 1, TopK: 1})
		if err != nil || got.Counts[0] != 1 {
			t.Fatalf("%s: %d sent, %v", kernel.ISA(), got.Counts[0], err)
		}
		if err := kernel.AddBack(l, delta, got); err != nil {
			t.Fatal(err)
		}
		for i, v := range delta {
			want := float64(grad[i])
			if i > 0 && i < 66 {
				want = 0
			}
			if math.Abs(float64(v)-want) > 0x1p-120 {
				t.Fatalf("%s: element %d is %g, want %g", kernel.ISA(), i, v, want)
			}
		}
		for _, i := range []int{0, 66} {
			grad[i] = float32(math.NaN())
			if _, err := kernel.Encode(l, delta, grad, EncodeParams{LR: 1, TopK: 1}); !errors.Is(err, ErrNotFinite) {
				t.Fatalf("%s: element %d is not a number: %v", kernel.ISA(), i, err)
			}
			grad[i] = 0
		}
	}
}

// TestChunkMovesByTheShareOfItsSenders checks that a chunk moves by the fraction of the results
// that sent something in it. The contents, signs or values, do not matter.
func TestChunkMovesByTheShareOfItsSenders(t *testing.T) {
	l := newLayout(t, []int64{4 * 67}, 67)
	full := codec.TensorResult{
		Counts: []uint16{1, 1, 1, 0}, Indices: make([]uint16, 4), Values: []float32{0.5, 1, 1, 0},
	}
	one := codec.TensorResult{
		Counts: []uint16{1, 0, 1, 0}, Indices: []uint16{0, 0, 1, 0}, Values: []float32{2, 0, 0x1p-60, 0},
	}
	none := l.Codec(1).NewResult()
	const rate = float32(0.3)
	third := float32(1) / 3
	for _, kernel := range kernels(t) {
		weights := make([]float32, l.Elements())
		if err := kernel.DecodeApply(l, []codec.TensorResult{full, one, none}, weights, ApplyParams{LR: rate, WeightFactor: 1}); err != nil {
			t.Fatal(err)
		}
		for chunk, want := range []float32{-rate * (float32(2) / 3), -rate * third, -rate * (float32(2) / 3), 0} {
			for i, w := range weights[67*chunk:][:67] {
				if w != want {
					t.Fatalf("%s: element %d of chunk %d moved by %g, want %g", kernel.ISA(), i, chunk, w, want)
				}
			}
		}
		if err := kernel.DecodeApply(l, nil, weights, ApplyParams{LR: rate, WeightFactor: 0.5}); err != nil || weights[0] != -rate*(float32(2)/3)/2 {
			t.Fatalf("%s: without results the weight is %g: %v", kernel.ISA(), weights[0], err)
		}
	}
}

// TestQuietChunksWait checks that a chunk without a coefficient of at least the floor sends nothing
// and keeps its momentum. The other chunks must send the same as without a floor.
func TestQuietChunksWait(t *testing.T) {
	l := newLayout(t, []int64{3 * 67}, 67)
	for _, kernel := range kernels(t) {
		for _, topK := range []int{3, 66} {
			delta, grad := make([]float32, l.Elements()), normal(1, l.Elements(), 1)
			for i := range 67 {
				grad[i] *= 0x1p-14
				grad[67+i] *= 0x1p-8
			}
			p := EncodeParams{Decay: 0.9, LR: 1, TopK: topK}
			all, err := kernel.Encode(l, make([]float32, l.Elements()), grad, p)
			if err != nil {
				t.Fatal(err)
			}
			p.Floor = kernel.Floor(delta, grad, p)
			if p.Floor < 0x1p-12 || p.Floor > 0x1p-10 {
				t.Fatalf("floor %g", p.Floor)
			}
			got, err := kernel.Encode(l, delta, grad, p)
			if err != nil {
				t.Fatal(err)
			}
			if got.Counts[0] != 0 || !slices.Equal(delta[:67], grad[:67]) || slices.Max(got.Indices[:topK]) != 0 {
				t.Errorf("%s: %d coefficients of the quiet chunk", kernel.ISA(), got.Counts[0])
			}
			if !slices.Equal(got.Counts[1:], all.Counts[1:]) || !slices.Equal(got.Indices[topK:], all.Indices[topK:]) || !slices.Equal(got.Values[topK:], all.Values[topK:]) {
				t.Errorf("%s: the other chunks send different entries", kernel.ISA())
			}
		}
	}
}

func TestFloorOfNonFiniteValues(t *testing.T) {
	kernel, err := NewKernel(Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := EncodeParams{Decay: 1, LR: 1, TopK: 1}
	for _, grad := range [][]float32{{float32(math.NaN())}, {float32(math.Inf(1))}, {}} {
		if floor := kernel.Floor(make([]float32, len(grad)), grad, p); floor != 0 {
			t.Errorf("floor %v of %v", floor, grad)
		}
	}
}
