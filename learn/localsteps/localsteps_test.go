package localsteps

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
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

func kernelOf(t interface{ Fatal(...any) }, isa string) *distro.Kernel {
	k, err := distro.NewKernel(distro.Options{ISA: isa})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// anyTensor draws a layout, and one sum per element.
func anyTensor(t *rapid.T) (distro.Layout, []float32) {
	l := layoutOf(t, rapid.SampledFrom([]int{1, 3, 8, 64}).Draw(t, "chunk"),
		rapid.Int64Range(1, 3).Draw(t, "stack"), rapid.Int64Range(1, 20).Draw(t, "rows"), rapid.Int64Range(1, 20).Draw(t, "cols"))
	sums := make([]float32, l.Elements())
	for i := range sums {
		sums[i] = rapid.SampledFrom([]float32{0, 1e-6, 1, -1, 3, -7e-3, 1e6}).Draw(t, "sum") * rapid.Float32Range(0.5, 1).Draw(t, "factor")
	}
	return l, sums
}

func anyParams(t *rapid.T) EncodeParams {
	return EncodeParams{
		Reach:     rapid.SampledFrom([]float32{1e-9, 1e-3, 1, 10}).Draw(t, "reach"),
		TopK:      rapid.IntRange(1, 9).Draw(t, "k"),
		LevelBits: rapid.IntRange(1, codec.MaxLevelBits).Draw(t, "bits"),
		Decay:     1,
	}
}

// TestResidualExcludesTheSentResult checks that a result that went through the codec and the
// remaining sums together equal the original sums, to the rounding of single precision, and that
// nothing grows.
func TestResidualExcludesTheSentResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, far := anyTensor(t)
		p := anyParams(t)
		k := kernelOf(t, "go")
		sums := make([]float32, len(far))
		result, err := Encode(k, l, sums, far, p)
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
		if before, left := norm(far), norm(sums); left > before*(1+1e-5) {
			t.Fatalf("%v before, %v remaining", before, left)
		}
		if err := addBack(k, l, sums, got[0], p.Reach, 1); err != nil {
			t.Fatal(err)
		}
		for i, back := range sums {
			sums[i] = back - far[i]
		}
		if off := norm(sums); off > 1e-5*norm(far) {
			t.Fatalf("the restored value differs by %v, of %v", off, norm(far))
		}
	})
}

func norm(values []float32) float64 {
	squares := 0.0
	for _, v := range values {
		squares += float64(v) * float64(v)
	}
	return math.Sqrt(squares)
}

// TestResidualsAreSentEventually checks that a value that a member adds in one round completely
// reaches the weights in later rounds.
func TestResidualsAreSentEventually(t *testing.T) {
	l, k := layoutOf(t, 8, 16, 16), kernelOf(t, "")
	sums, weights := make([]float32, 256), make([]float32, 256)
	far, nothing := make([]float32, 256), make([]float32, 256)
	for i := range far {
		far[i] = float32(math.Sin(float64(i)))
	}
	d := far
	for range 150 {
		result, err := Encode(k, l, sums, d, EncodeParams{Reach: 1, TopK: 8, LevelBits: 2, Decay: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := Apply(k, l, []codec.TensorResult{result}, weights, ApplyParams{Reach: 1, LevelBits: 2, Rate: 1}); err != nil {
			t.Fatal(err)
		}
		d = nothing
	}
	for i := range far {
		if off := math.Abs(float64(weights[i] + far[i])); off > 1e-4 {
			t.Errorf("element %d is %v, want %v", i, weights[i], -far[i])
		}
	}
}

// TestFar compares with two manually computed rounds of Nesterov's momentum.
func TestFar(t *testing.T) {
	u := []float32{0}
	for _, round := range []struct{ before, after, want, u float32 }{{3, 1, 2 + 1, 2}, {1, -3, 4 + 2.5, 5}} {
		after := []float32{round.after}
		if Far([]float32{round.before}, after, u, 0.5); after[0] != round.want || u[0] != round.u {
			t.Errorf("it came %v, want %v; momentum %v, want %v", after[0], round.want, u[0], round.u)
		}
	}
	after := []float32{1}
	if Far([]float32{3}, after, nil, 0); after[0] != 2 {
		t.Errorf("without a momentum the result is %v, want 2", after[0])
	}
}

// TestReplicasMoveAlike checks that all kernels move weights to the same bits, and by the mean of
// the results.
func TestReplicasMoveAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, weights := anyTensor(t)
		p := anyParams(t)
		reference := kernelOf(t, "go")
		var results []codec.TensorResult
		var votes distro.Votes
		for range rapid.IntRange(0, 4).Draw(t, "results") {
			votes = append(votes, rapid.Uint8Range(1, assign.FullVote).Draw(t, "vote"))
			far := make([]float32, l.Elements())
			for i := range far {
				far[i] = rapid.Float32Range(-2, 2).Draw(t, "far") * p.Reach
			}
			result, err := Encode(reference, l, make([]float32, len(far)), far, p)
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, result)
		}
		apply := ApplyParams{Reach: p.Reach, LevelBits: p.LevelBits, Rate: rapid.SampledFrom([]float32{0, 0.7, 1}).Draw(t, "rate"), Votes: votes}
		want, other := slices.Clone(weights), slices.Clone(weights)
		if err := errors.Join(Apply(reference, l, results, want, apply), Apply(kernelOf(t, ""), l, results, other, apply)); err != nil {
			t.Fatal(err)
		}
		moved := make([]float32, len(weights))
		shares := sharesOf(results)
		for i, r := range results {
			if err := addBack(reference, l, moved, r, p.Reach, float32(-float64(apply.Rate)*shares[i]*float64(votes[i])/float64(votes.Sum(len(votes))))); err != nil {
				t.Fatal(err)
			}
		}
		for j := range want {
			if math.Float32bits(want[j]) != math.Float32bits(other[j]) {
				t.Fatalf("weight %d became %v here, %v there", j, want[j], other[j])
			}
			if off := math.Abs(float64(want[j]) - float64(weights[j]) - float64(moved[j])); off > 1e-4*(float64(p.Reach)+math.Abs(float64(weights[j]))) {
				t.Fatalf("weight %d moved from %v to %v, want by %v", j, weights[j], want[j], moved[j])
			}
		}
	})
}

// loud returns a result with the given number in each chunk.
func loud(l distro.Layout, unit uint8, level float32) codec.TensorResult {
	r := l.Codec(1).NewLevels()
	for c := range r.Counts {
		r.Counts[c], r.Values[c], r.Units[c] = 1, level, unit
	}
	return r
}

// TestLoudResultsAreShortened checks that a result with more than twice the median norm moves the
// weights as much as a result with twice the median norm.
func TestLoudResultsAreShortened(t *testing.T) {
	l := layoutOf(t, 4, 8, 8)
	quiet, byzantine := loud(l, 31, 1), loud(l, 0, -2)
	shares := sharesOf([]codec.TensorResult{quiet, byzantine, quiet, l.Codec(1).NewLevels()})
	if shares[0] != 1 || shares[2] != 1 || shares[3] != 1 {
		t.Errorf("the others weigh %v", shares)
	}
	if got, want := shares[1]*2*unitOf(0), 2*unitOf(31); math.Abs(got-want) > 1e-12 {
		t.Errorf("the Byzantine trainer moves weights by %v, want %v", got, want)
	}
	// Two results with a normal difference are not changed.
	if shares := sharesOf([]codec.TensorResult{loud(l, 30, 1), loud(l, 31, 1)}); shares[0] != 1 || shares[1] != 1 {
		t.Errorf("honest ones weigh %v", shares)
	}
}

// TestUnits checks that each unit is smaller than the unit before it, and that all units are exact.
func TestUnits(t *testing.T) {
	if unitOf(0) != 1.75 || unitOf(3) != 1 || unitOf(4) != 0.875 || unitOf(codec.MaxUnit) != 1.0/(1<<31) {
		t.Errorf("units %v, %v, %v, %v", unitOf(0), unitOf(3), unitOf(4), unitOf(codec.MaxUnit))
	}
	for code := uint8(1); code <= codec.MaxUnit; code++ {
		if unitOf(code) >= unitOf(code-1) {
			t.Errorf("unit %d is %v, the previous unit is %v", code, unitOf(code), unitOf(code-1))
		}
	}
}

// TestGoldenStep pins the bits that all replicas compute.
func TestGoldenStep(t *testing.T) {
	l := layoutOf(t, 2, 2, 2)
	first, second := l.Codec(2).NewLevels(), l.Codec(2).NewLevels()
	first.Counts[0], first.Indices[1], first.Values[0], first.Values[1], first.Units[0] = 2, 3, 2, -1, 9
	second.Counts[0], second.Indices[0], second.Values[0], second.Units[0] = 1, 3, -2, 10
	weights := []float32{0.1, 0.2, 0.3, 0.4}
	p := ApplyParams{Reach: 3e-2, LevelBits: 2, Rate: 0.7}
	for _, test := range []struct {
		votes distro.Votes
		want  [4]uint32
	}{
		{nil, [4]uint32{0x3dd22d0f, 0x3e39fbe8, 0x3e903127, 0x3ece24dd}},
		{distro.Votes{16, 16}, [4]uint32{0x3dd22d0f, 0x3e39fbe8, 0x3e903127, 0x3ece24dd}},
		{distro.Votes{16, 3}, [4]uint32{0x3dc37676, 0x3e364e42, 0x3e8e5a54, 0x3eca7737}},
	} {
		weights := slices.Clone(weights)
		p.Votes = test.votes
		if err := Apply(kernelOf(t, ""), l, []codec.TensorResult{first, second}, weights, p); err != nil {
			t.Fatal(err)
		}
		for i, want := range test.want {
			if got := math.Float32bits(weights[i]); got != want {
				t.Errorf("votes %v: weight %d is %#x (%v), want %#x", test.votes, i, got, weights[i], want)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	l, k := layoutOf(t, 4, 4, 4), kernelOf(t, "")
	good := EncodeParams{Reach: 1, TopK: 1, LevelBits: 1, Decay: 1}
	for name, change := range map[string]func(p *EncodeParams){
		"no k":          func(p *EncodeParams) { p.TopK = 0 },
		"no bits":       func(p *EncodeParams) { p.LevelBits = 0 },
		"bits":          func(p *EncodeParams) { p.LevelBits = 5 },
		"reach":         func(p *EncodeParams) { p.Reach = -1 },
		"endless reach": func(p *EncodeParams) { p.Reach = float32(math.Inf(1)) },
	} {
		p := good
		change(&p)
		if _, err := Encode(k, l, make([]float32, 16), make([]float32, 16), p); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Encode(k, l, make([]float32, 15), make([]float32, 16), good); !errors.Is(err, distro.ErrInput) {
		t.Errorf("too few sums: error %v", err)
	}
	bad := make([]float32, 16)
	bad[3] = float32(math.NaN())
	if _, err := Encode(k, l, make([]float32, 16), bad, good); !errors.Is(err, distro.ErrNotFinite) {
		t.Errorf("no number: error %v", err)
	}
	weights := make([]float32, 16)
	for name, r := range map[string]codec.TensorResult{
		"another layout": layoutOf(t, 4, 8, 4).Codec(1).NewLevels(),
		"no units":       l.Codec(1).NewResult(),
		"level":          loud(l, 1, 2),
	} {
		if err := Apply(k, l, []codec.TensorResult{loud(l, 1, 1), r}, weights, ApplyParams{Reach: 1, LevelBits: 1, Rate: 1}); !errors.Is(err, errInput) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if slices.ContainsFunc(weights, func(w float32) bool { return w != 0 }) {
		t.Error("a weight moved")
	}
	for _, votes := range []distro.Votes{{}, {1, 1}, {0}, {17}} {
		if err := Apply(k, l, []codec.TensorResult{loud(l, 1, 1)}, weights, ApplyParams{Reach: 1, LevelBits: 1, Rate: 1, Votes: votes}); !errors.Is(err, errInput) {
			t.Errorf("votes %v: error %v", votes, err)
		}
	}
	sums := make([]float32, 16)
	if r, err := Encode(k, l, sums, []float32{0: 1, 15: 0}, EncodeParams{TopK: 1, LevelBits: 1}); err != nil || r.Counts[0] != 0 || math.Abs(norm(sums)-1) > 1e-6 {
		t.Errorf("without a reach %v is sent, %v left, error %v", r, sums, err)
	}
}

// addBack adds the values of a result, times a factor, to sums.
func addBack(k *distro.Kernel, l distro.Layout, sums []float32, r codec.TensorResult, reach, factor float32) error {
	back, err := Values(l, r, reach, factor)
	if err != nil {
		return err
	}
	return k.AddBack(l, sums, back)
}
