package localsteps

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

func layoutOf(t interface{ Fatal(...any) }, chunk int, shape ...int64) distro.Layout {
	l, err := distro.NewLayout(shape, chunk)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// anyTensor draws a layout and as many sums as it has elements.
func anyTensor(t *rapid.T) (distro.Layout, []float32) {
	l := layoutOf(t, rapid.SampledFrom([]int{1, 3, 8, 64}).Draw(t, "chunk"),
		rapid.Int64Range(1, 3).Draw(t, "stack"), rapid.Int64Range(1, 20).Draw(t, "rows"), rapid.Int64Range(1, 20).Draw(t, "cols"))
	sums := make([]float32, l.Elements())
	for i := range sums {
		sums[i] = rapid.SampledFrom([]float32{0, 1e-30, -1e-30, 1, -1, 3, -7e-3, 1e6}).Draw(t, "sum") * rapid.Float32Range(0.5, 1).Draw(t, "factor")
	}
	return l, sums
}

func anyParams(t *rapid.T) EncodeParams {
	return EncodeParams{
		Reach:     rapid.SampledFrom([]float32{1e-30, 1e-3, 1, 10}).Draw(t, "reach"),
		TopK:      rapid.IntRange(1, 9).Draw(t, "k"),
		LevelBits: rapid.IntRange(1, codec.MaxLevelBits).Draw(t, "bits"),
	}
}

// TestWhatIsSentIsTakenOut: a result travels through the codec, and with what is left it makes up
// what was there, to the rounding of single precision; no sum grows.
func TestWhatIsSentIsTakenOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, sums := anyTensor(t)
		p := anyParams(t)
		before := slices.Clone(sums)
		result, err := Encode(l, sums, p)
		if err != nil {
			t.Fatal(err)
		}
		layouts := []codec.TensorLayout{l.Codec(p.TopK)}
		blob, err := codec.EncodeLevels(codec.Header{BatchEnd: 1}, layouts, p.LevelBits, []codec.TensorResult{result})
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := codec.DecodeLevels(blob, layouts, p.LevelBits)
		if err != nil {
			t.Fatal(err)
		}
		for i, left := range sums {
			if max(left, -left) > max(before[i], -before[i]) {
				t.Fatalf("element %d was %v, and %v is left", i, before[i], left)
			}
		}
		if err := AddBack(l, sums, got[0], p.Reach, 1); err != nil {
			t.Fatal(err)
		}
		for i, back := range sums {
			if off := math.Abs(float64(back - before[i])); off > 1e-6*math.Abs(float64(before[i])) {
				t.Fatalf("element %d was %v, and is %v again", i, before[i], back)
			}
		}
	})
}

// TestTheLargestAreSent compares with a sort.
func TestTheLargestAreSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chunk := rapid.SliceOfN(rapid.SampledFrom([]float32{0, 1, -1, 2, -2, 3, 0.5}), 1, 60).Draw(t, "chunk")
		k := rapid.IntRange(1, 9).Draw(t, "k")
		var want []uint16
		for i := range chunk {
			want = append(want, uint16(i))
		}
		size := func(i uint16) float32 { return max(chunk[i], -chunk[i]) }
		want = slices.DeleteFunc(want, func(i uint16) bool { return size(i) == 0 })
		slices.SortStableFunc(want, func(a, b uint16) int { return int(4 * (size(b) - size(a))) })
		want = want[:min(k, len(want))]
		slices.Sort(want)
		c := chooser{most: k}
		c.choose(chunk)
		var got []uint16
		for _, chosen := range c.chosen {
			got = append(got, chosen.index)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("chose %v of %v, want %v", got, chunk, want)
		}
	})
}

// TestEverythingArrives: what a member adds in one round reaches the weights in the end.
func TestEverythingArrives(t *testing.T) {
	l := layoutOf(t, 8, 16, 16)
	sums, weights := make([]float32, 256), make([]float32, 256)
	want := make([]float32, 256)
	for i := range want {
		want[i] = float32(math.Sin(float64(i)))
	}
	for i, w := range want { // what is sent moves weights against it
		want[i] = -w
	}
	Feed(sums, weights, want, 0.5, nil, 0)
	p := EncodeParams{Reach: 1, TopK: 8, LevelBits: 2}
	for range 100 {
		result, err := Encode(l, sums, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := Apply(l, []codec.TensorResult{result}, weights, ApplyParams{Reach: 1, LevelBits: 2, Rate: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range want {
		if off := math.Abs(float64(weights[i] - want[i])); off > 1e-4 {
			t.Errorf("element %d is %v, want %v", i, weights[i], want[i])
		}
	}
}

// TestFeed is two rounds of Nesterov's momentum by hand.
func TestFeed(t *testing.T) {
	sums, u := []float32{1}, []float32{0}
	Feed(sums, []float32{3}, []float32{1}, 0.5, u, 0.5)  // d = 2, u = 2
	Feed(sums, []float32{1}, []float32{-3}, 0.5, u, 0.5) // d = 4, u = 5
	if want := float32(0.5*(0.5+2+1) + 4 + 2.5); sums[0] != want || u[0] != 5 {
		t.Errorf("the sum is %v, want %v, and the momentum %v", sums[0], want, u[0])
	}
}

// TestApplyIsTheMean compares Apply with sums written out, bit for bit.
func TestApplyIsTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, weights := anyTensor(t)
		p := anyParams(t)
		var results []codec.TensorResult
		for range rapid.IntRange(0, 4).Draw(t, "results") {
			sums := make([]float32, l.Elements())
			for i := range sums {
				sums[i] = rapid.Float32Range(-2, 2).Draw(t, "sum") * p.Reach
			}
			result, err := Encode(l, sums, p)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, result)
		}
		rate := rapid.SampledFrom([]float32{0, 0.7, 1}).Draw(t, "rate")
		want := slices.Clone(weights)
		total := make([]float64, len(weights))
		shares := Shares(results, p.Reach)
		for i, r := range results {
			alone := make([]float32, len(weights))
			if err := AddBack(l, alone, r, 1, 1); err != nil { // exact: levels times units
				t.Fatal(err)
			}
			for j, v := range alone {
				term := shares[i] * (float64(v) * float64(p.Reach))
				total[j] += term
			}
		}
		for j := range want {
			if total[j] != 0 {
				scale := float64(rate) / float64(len(results))
				want[j] -= float32(total[j] * scale)
			}
		}
		if err := Apply(l, results, weights, ApplyParams{Reach: p.Reach, LevelBits: p.LevelBits, Rate: rate}); err != nil {
			t.Fatal(err)
		}
		for j := range want {
			if math.Float32bits(weights[j]) != math.Float32bits(want[j]) {
				t.Fatalf("weight %d became %v, want %v", j, weights[j], want[j])
			}
		}
	})
}

// loud returns a result that says one number of each chunk.
func loud(l distro.Layout, unit uint8, level float32) codec.TensorResult {
	r := l.Codec(1).NewLevels()
	for c := range r.Counts {
		r.Counts[c], r.Values[c], r.Units[c] = 1, level, unit
	}
	return r
}

// TestLoudResultsAreShortened: who says more than twice what the median says moves as much as that.
func TestLoudResultsAreShortened(t *testing.T) {
	l := layoutOf(t, 4, 8, 8)
	quiet, liar := loud(l, 31, 1), loud(l, 0, -2)
	shares := Shares([]codec.TensorResult{quiet, liar, quiet, l.Codec(1).NewLevels()}, 1)
	if shares[0] != 1 || shares[2] != 1 || shares[3] != 1 {
		t.Errorf("the others weigh %v", shares)
	}
	if got, want := shares[1]*2*Unit(0), 2*Unit(31); math.Abs(got-want) > 1e-12 {
		t.Errorf("the liar moves weights by %v, want %v", got, want)
	}
	// Two whose steps differ as steps do are left alone.
	if shares := Shares([]codec.TensorResult{loud(l, 30, 1), loud(l, 31, 1)}, 1); shares[0] != 1 || shares[1] != 1 {
		t.Errorf("honest ones weigh %v", shares)
	}
}

// TestUnits: each is smaller than the one before, and all are exact.
func TestUnits(t *testing.T) {
	if Unit(0) != 1.75 || Unit(3) != 1 || Unit(4) != 0.875 || Unit(codec.MaxUnit) != 1.0/(1<<15) {
		t.Errorf("units %v, %v, %v, %v", Unit(0), Unit(3), Unit(4), Unit(codec.MaxUnit))
	}
	for code := uint8(1); code <= codec.MaxUnit; code++ {
		if Unit(code) >= Unit(code-1) {
			t.Errorf("unit %d is %v, the one before %v", code, Unit(code), Unit(code-1))
		}
	}
}

// TestGoldenStep pins the bits that all replicas come to.
func TestGoldenStep(t *testing.T) {
	l := layoutOf(t, 2, 2, 2)
	first, second := l.Codec(2).NewLevels(), l.Codec(2).NewLevels()
	first.Counts[0], first.Indices[1], first.Values[0], first.Values[1], first.Units[0] = 2, 3, 2, -1, 9
	second.Counts[0], second.Indices[0], second.Values[0], second.Units[0] = 1, 3, -2, 10
	weights := []float32{0.1, 0.2, 0.3, 0.4}
	p := ApplyParams{Reach: 3e-2, LevelBits: 2, Rate: 0.7}
	if err := Apply(l, []codec.TensorResult{first, second}, weights, p); err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint32{0x3dbcac08, 0x3e4ccccd, 0x3e99999a, 0x3ed22d0f} {
		if got := math.Float32bits(weights[i]); got != want {
			t.Errorf("weight %d is %#x (%v), want %#x", i, got, weights[i], want)
		}
	}
}

func TestRefused(t *testing.T) {
	l := layoutOf(t, 4, 4, 4)
	good := EncodeParams{Reach: 1, TopK: 1, LevelBits: 1}
	for name, p := range map[string]EncodeParams{
		"no k": {Reach: 1, LevelBits: 1}, "no bits": {Reach: 1, TopK: 1}, "bits": {Reach: 1, TopK: 1, LevelBits: 5},
		"reach": {Reach: -1, TopK: 1, LevelBits: 1}, "endless reach": {Reach: float32(math.Inf(1)), TopK: 1, LevelBits: 1},
	} {
		if _, err := Encode(l, make([]float32, 16), p); !errors.Is(err, ErrInput) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Encode(l, make([]float32, 15), good); !errors.Is(err, ErrInput) {
		t.Errorf("too few sums: error %v", err)
	}
	bad := make([]float32, 16)
	bad[3] = float32(math.NaN())
	if _, err := Encode(l, bad, good); !errors.Is(err, ErrNotFinite) {
		t.Errorf("no number: error %v", err)
	}
	weights := make([]float32, 16)
	for name, r := range map[string]codec.TensorResult{
		"another layout": layoutOf(t, 4, 8, 4).Codec(1).NewLevels(),
		"no units":       l.Codec(1).NewResult(),
		"level":          loud(l, 1, 2),
	} {
		if err := Apply(l, []codec.TensorResult{loud(l, 1, 1), r}, weights, ApplyParams{Reach: 1, LevelBits: 1, Rate: 1}); !errors.Is(err, ErrInput) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if slices.ContainsFunc(weights, func(w float32) bool { return w != 0 }) {
		t.Error("a weight moved")
	}
	if r, err := Encode(l, []float32{0: 1, 15: 0}, EncodeParams{TopK: 1, LevelBits: 1}); err != nil || r.Counts[0] != 0 {
		t.Errorf("without a reach %v is sent, error %v", r, err)
	}
}
