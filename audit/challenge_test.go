package audit_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/golden"
)

// TestChallengesAreKept: who draws differently asks for other chunks than the trainer opens.
func TestChallengesAreKept(t *testing.T) {
	shapes := audit.Shapes{{Chunks: 100, Rows: 64, Cols: 64, K: 8}, {Chunks: 40, Rows: 1, Cols: 64, K: 8}, {Chunks: 60, Rows: 64, Cols: 32, K: 8}}
	text := ""
	for seed := range uint64(3) {
		text += fmt.Sprintln(audit.Chunks(seed, uint32(7+seed), [32]byte{byte(seed)}, shapes, audit.DefaultChunks))
	}
	golden.Compare(t, "challenges.golden", text)
}

// TestChunksAreDrawnBySize: a chunk is drawn as often as its part of the model is.
func TestChunksAreDrawnBySize(t *testing.T) {
	shapes := audit.Shapes{{Chunks: 30, Rows: 8, Cols: 8, K: 1}, {Chunks: 30, Rows: 1, Cols: 8, K: 1}}
	drawn, large := 0, 0
	for seed := range uint64(2000) {
		chunks := audit.Chunks(seed, 1, [32]byte{}, shapes, 3)
		if !slices.IsSorted(chunks) || len(slices.Compact(slices.Clone(chunks))) != 3 {
			t.Fatalf("drawn: %v", chunks)
		}
		for _, c := range chunks {
			if drawn++; c < 30 {
				large++
			}
		}
	}
	if share := float64(large) / float64(drawn); math.Abs(share-8.0/9) > 0.02 {
		t.Errorf("%.3f of the chunks drawn are large, want 8/9", share)
	}
}

func TestChunksOfASmallModel(t *testing.T) {
	shapes := audit.Shapes{{Chunks: 5, Rows: 2, Cols: 2, K: 1}}
	if got := audit.Chunks(1, 1, [32]byte{}, shapes, 99); !slices.Equal(got, []uint32{0, 1, 2, 3, 4}) {
		t.Errorf("chunks: %v", got)
	}
	if got := audit.Chunks(1, 1, [32]byte{}, shapes, -1); len(got) != 0 {
		t.Errorf("no chunks: %v", got)
	}
}

// TestLazyVerifiersAreUnlike: prints of two gradients that differ a little are alike, of
// another gradient they are not.
func TestLazyVerifiersAreUnlike(t *testing.T) {
	r := newRig(t)
	g := r.gradient()
	r.train(1, g)
	own := r.exam(r.all(), g).Prints(5)
	if share := audit.Alike(own, r.exam(r.all(), r.blurred(g, 0.01)).Prints(5), 0.05); share < 0.95 {
		t.Errorf("the same gradient elsewhere: %.2f alike", share)
	}
	guess := r.exam(r.all(), r.gradient()).Prints(5)
	if share := audit.Alike(own, guess, 0.05); share > 0.3 {
		t.Errorf("another gradient: %.2f alike", share)
	}
	if audit.Alike(own, r.exam(r.all(), g).Prints(6), 0.05) > 0.3 {
		t.Error("another seed gives the same projections")
	}
	if audit.PrintSeed(5, [32]byte{1}) == audit.PrintSeed(5, [32]byte{2}) || audit.PrintSeed(5, [32]byte{1}) == audit.PrintSeed(6, [32]byte{1}) {
		t.Error("two verifiers, or rounds, have one seed")
	}
	if audit.Alike(own, own[1:], 1) != 0 || audit.Alike(nil, nil, 1) != 0 {
		t.Error("prints of other chunks are alike")
	}
}

func TestCopies(t *testing.T) {
	r := newRig(t)
	g := r.gradient()
	original := r.train(1, g).taken
	other := newRig(t)
	other.random = r.random
	honest := other.train(1, other.gradient()).taken
	results := [][]resultOfTensor{original, honest, flipped(original), doubled(honest)}
	pairs := audit.Copies(r.shapes, r.all(), results, audit.CopyShare)
	if len(pairs) != 2 || pairs[0] != [2]int{0, 2} || pairs[1] != [2]int{1, 3} {
		t.Errorf("copies: %v", pairs)
	}
	o := audit.Compare(r.shapes, r.all(), original, flipped(original))
	if o.Same != 0 || o.Opposite != o.Entries || o.Share() != 1 {
		t.Errorf("negated copy: %+v", o)
	}
	if o := audit.Compare(r.shapes, []uint32{99}, original, honest); o.Share() != 0 {
		t.Errorf("no such chunk: %+v", o)
	}
}
