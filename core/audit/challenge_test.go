package audit_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/audit"
)

// TestChallengesAreKept checks the drawn chunks against a golden file. An auditor that draws
// differently would request different chunks than the trainer opens.
func TestChallengesAreKept(t *testing.T) {
	shapes := audit.Shapes{{Chunks: 100, Rows: 64, Cols: 64, K: 8}, {Chunks: 40, Rows: 1, Cols: 64, K: 8}, {Chunks: 60, Rows: 64, Cols: 32, K: 8}}
	text := ""
	for seed := range byte(3) {
		text += fmt.Sprintln(audit.Chunks([32]byte{seed, 31: 9}, 7+uint32(seed), [32]byte{seed}, shapes, audit.DefaultChunks, []uint32{3, 5, 150}[:seed]))
	}
	golden.Compare(t, "challenges.golden", text)
}

// TestChunksAreDrawnBySize checks that a chunk is drawn in proportion to its share of the model.
func TestChunksAreDrawnBySize(t *testing.T) {
	shapes := audit.Shapes{{Chunks: 30, Rows: 8, Cols: 8, K: 1}, {Chunks: 30, Rows: 1, Cols: 8, K: 1}}
	drawn, large := 0, 0
	for seed := range uint16(2000) {
		chunks := audit.Chunks([32]byte{byte(seed), byte(seed >> 8)}, 1, [32]byte{}, shapes, 3, nil)
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
	if got := audit.Chunks([32]byte{}, 1, [32]byte{}, shapes, 99, []uint32{1, 2}); !slices.Equal(got, []uint32{0, 1, 2, 3, 4}) {
		t.Errorf("chunks: %v", got)
	}
	if got := audit.Chunks([32]byte{}, 1, [32]byte{}, shapes, -1, nil); len(got) != 0 {
		t.Errorf("no chunks: %v", got)
	}
}

// TestLowSupportChunks checks that half of the drawn chunks are low-support chunks, or all
// low-support chunks if there are fewer.
func TestLowSupportChunks(t *testing.T) {
	shapes := audit.Shapes{{Chunks: 10_000, Rows: 8, Cols: 8, K: 1}}
	var lowSupport []uint32
	for _, want := range []int{0, 1, 15, 16, 100} {
		for len(lowSupport) < want {
			lowSupport = append(lowSupport, uint32(5000+len(lowSupport)))
		}
		among := 0
		drawn := audit.Chunks([32]byte{1}, 2, [32]byte{3}, shapes, audit.DefaultChunks, lowSupport)
		for _, chunk := range drawn {
			if _, found := slices.BinarySearch(lowSupport, chunk); found {
				among++
			}
		}
		if len(drawn) != audit.DefaultChunks || !slices.IsSorted(drawn) || among < min(want, 16) || among > min(want, 16)+2 {
			t.Errorf("%d low-support chunks: %d of %d drawn chunks", want, among, len(drawn))
		}
	}
}
