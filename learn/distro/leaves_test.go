package distro

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
)

// TestLeavesAreOfTheChunks checks that for any number of threads the leaf of a chunk commits to the
// chunk's rows and to the coefficients removed from it.
func TestLeavesAreOfTheChunks(t *testing.T) {
	for _, shape := range [][]int64{{192, 300}, {130}, {2, 48, 80}} {
		layout, err := NewLayout(shape, 32)
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(3, 4))
		delta, grad := make([]float32, layout.Elements()), make([]float32, layout.Elements())
		for i := range grad {
			grad[i] = float32(random.NormFloat64())
		}
		var first [][32]byte
		for threads := 1; threads <= 3; threads++ {
			kernel, err := NewKernel(Options{Threads: threads})
			if err != nil {
				t.Fatal(err)
			}
			clear(delta)
			taken, err := kernel.Encode(layout, delta, grad, EncodeParams{Decay: 0.5, LR: 1, TopK: 3})
			if err != nil {
				t.Fatal(err)
			}
			digests, leaves, err := kernel.Leaves(layout, delta, taken)
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = leaves
			}
			if !slices.Equal(first, leaves) {
				t.Errorf("%v: %d threads give other leaves", shape, threads)
			}
			for c := range layout.Chunks() {
				digest := audit.Digest(layout.Chunk(delta, c, nil))
				if digests[c] != digest || leaves[c] != audit.Leaf(digest, TakenOf(taken, c, layout.Chunks())) {
					t.Fatalf("%v: chunk %d has another leaf", shape, c)
				}
			}
			if _, _, err := kernel.Leaves(layout, delta[1:], taken); !errors.Is(err, ErrInput) {
				t.Errorf("too few momenta: error %v", err)
			}
			taken.Counts = taken.Counts[1:]
			if _, _, err := kernel.Leaves(layout, delta, taken); !errors.Is(err, ErrInput) {
				t.Errorf("a result of another layout: error %v", err)
			}
		}
	}
}

// TestChunksAreTheTensor checks that all chunks of a tensor together contain each of its values
// once.
func TestChunksAreTheTensor(t *testing.T) {
	layout, err := NewLayout([]int64{3, 40, 24}, 16)
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, layout.Elements())
	for i := range values {
		values[i] = float32(i)
	}
	var all []float32
	for c := range layout.Chunks() {
		chunk := layout.Chunk(values, c, nil)
		rows, cols := layout.ChunkShape()
		for r := range rows {
			if want := float32(layout.offset(c) + r*layout.cols); chunk[r*cols] != want {
				t.Fatalf("chunk %d, row %d begins with %v, want %v", c, r, chunk[r*cols], want)
			}
		}
		all = append(all, chunk...)
	}
	slices.Sort(all)
	if !slices.Equal(all, values) {
		t.Error("the chunks do not hold the tensor")
	}
}

// BenchmarkLeaves hashes the momentum of a matrix of 16 M elements.
func BenchmarkLeaves(b *testing.B) {
	layout, err := NewLayout([]int64{4096, 4096}, 64)
	if err != nil {
		b.Fatal(err)
	}
	for _, threads := range []int{1, 2} {
		b.Run([]string{"", "1 thread", "2 threads"}[threads], func(b *testing.B) {
			kernel, err := NewKernel(Options{Threads: threads})
			if err != nil {
				b.Fatal(err)
			}
			delta, taken := make([]float32, layout.Elements()), layout.Codec(8).NewResult()
			b.SetBytes(4 * int64(len(delta)))
			for b.Loop() {
				if _, _, err := kernel.Leaves(layout, delta, taken); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
