package distro

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro/distrotest"
)

// drawResults returns results of a tensor, as signs or as values.
func drawResults(t *testing.T, rt *rapid.T, kernel *Kernel, l Layout, most int) (results []codec.TensorResult) {
	signs := rapid.Bool().Draw(rt, "signs")
	for i := range rapid.IntRange(1, most).Draw(rt, "results") {
		grad := normal(rapid.Uint64().Draw(rt, "seed")+uint64(i), l.Elements(), 1)
		if rapid.Bool().Draw(rt, "half") {
			clear(grad[:len(grad)/2])
		}
		r, err := kernel.Encode(l, make([]float32, l.Elements()), grad, EncodeParams{Decay: 1, LR: 1, TopK: 6})
		if err != nil {
			t.Fatal(err)
		}
		if signs {
			distrotest.ToSigns(r)
		}
		results = append(results, r)
	}
	return results
}

// applied returns the bits of weights, which begin as zeros, after an update.
func applied(rt *rapid.T, kernel *Kernel, l Layout, results []codec.TensorResult, votes Votes) string {
	weights := make([]float32, l.Elements())
	if err := kernel.DecodeApply(l, results, weights, ApplyParams{LR: 0.3, WeightFactor: 0.9, Votes: votes}); err != nil {
		rt.Fatal(err)
	}
	return bitsOf(weights)
}

// TestRates checks that results from all senders move a chunk by exactly the whole rate, and that
// more senders never move it less.
func TestRates(t *testing.T) {
	p := ApplyParams{LR: 4e-4, WeightFactor: 1}
	for _, counted := range []int{0, 1, 2, 3, 7, 10, 256, 1000, 16000} {
		rates := make([]float32, counted+1)
		for sent := range rates {
			rates[sent] = p.rate(sent, counted)
		}
		if rates[0] != 0 || counted > 0 && rates[counted] != p.LR || !slices.IsSorted(rates) {
			t.Errorf("of %d votes: %v", counted, rates)
		}
	}
}

// TestFullVotesChangeNothing checks that full votes give the bits of no votes, and that only the
// relation of votes matters.
func TestFullVotesChangeNothing(t *testing.T) {
	kernel, err := NewKernel(Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := newLayout(t, []int64{16, 32}, rapid.SampledFrom([]int{8, 12, 16}).Draw(rt, "chunk"))
		results := drawResults(t, rt, kernel, l, 9)
		full := slices.Repeat(Votes{assign.FullVote}, len(results))
		if applied(rt, kernel, l, results, full) != applied(rt, kernel, l, results, nil) {
			rt.Fatal("full votes give other weights than no votes")
		}
		votes := make(Votes, len(results))
		for i := range votes {
			votes[i] = rapid.Uint8Range(1, assign.FullVote/2).Draw(rt, "vote")
		}
		double := slices.Clone(votes)
		for i := range double {
			double[i] *= 2
		}
		if applied(rt, kernel, l, results, double) != applied(rt, kernel, l, results, votes) {
			rt.Fatalf("votes %v give other weights than %v", double, votes)
		}
	})
}

// TestVotesCountAsResults checks that a result of signs with a vote of v moves the weights as v results
// with a vote of 1 each do.
func TestVotesCountAsResults(t *testing.T) {
	kernel, err := NewKernel(Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := newLayout(t, []int64{16, 32}, 8)
		results := drawResults(t, rt, kernel, l, 5)
		var votes Votes
		var copies []codec.TensorResult
		for _, r := range results {
			distrotest.ToSigns(r)
			vote := rapid.Uint8Range(1, assign.FullVote).Draw(rt, "vote")
			votes, copies = append(votes, vote), append(copies, slices.Repeat([]codec.TensorResult{r}, int(vote))...)
		}
		if applied(rt, kernel, l, results, votes) != applied(rt, kernel, l, copies, nil) {
			rt.Fatalf("votes %v give other weights than as many results", votes)
		}
	})
}

func TestVotesDecideSigns(t *testing.T) {
	l := newLayout(t, []int64{16}, 8)
	for _, kernel := range kernels(t) {
		a, b := l.Codec(1).NewResult(), l.Codec(1).NewResult()
		a.Counts, a.Values = []uint16{1, 1}, []float32{1, 1} // a positive mean in both chunks
		b.Counts, b.Values = []uint16{1, 0}, []float32{-1, 0}
		for _, test := range []struct {
			votes Votes
			first float32 // of the first chunk
			other float32
		}{
			{nil, 0, -0.5},
			{Votes{5, 3}, -1, -0.625},
			{Votes{1, 15}, 1, -0.0625},
		} {
			weights := make([]float32, 16)
			if err := kernel.DecodeApply(l, []codec.TensorResult{a, b}, weights, ApplyParams{LR: 1, WeightFactor: 1, Votes: test.votes}); err != nil {
				t.Fatal(err)
			}
			if weights[0] != test.first || weights[8] != test.other {
				t.Errorf("%s: votes %v move the weights by %v and %v, want %v and %v", kernel.ISA(), test.votes, weights[0], weights[8], test.first, test.other)
			}
		}
	}
}
