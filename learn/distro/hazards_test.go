package distro

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
)

// TestMoreChunksThanSixteenBitsCount uses a dimension that is a prime above 65,535, so that every
// row is a separate chunk.
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
