package train

import (
	"testing"

	"github.com/psyche-go/psyche/core/codec"
)

// TestDecodedResultsAreBounded checks that results are not kept if they exceed the memory limit,
// and that forgotten results make room for new ones.
func TestDecodedResultsAreBounded(t *testing.T) {
	tensors := []codec.TensorResult{{Counts: make([]uint16, 1), Indices: make([]uint16, 1), Values: make([]float32, 1)}} // 8 bytes
	d := &decodedResults{room: 20}
	names := []string{"a", "b", "c"}
	for i, name := range names {
		d.put([]byte(name), codec.Header{Step: uint32(i + 1)}, tensors)
		d.put([]byte(name), codec.Header{Step: uint32(i + 1)}, tensors) // again
	}
	kept := func() (found string) {
		for _, name := range names {
			if _, _, ok := d.get([]byte(name)); ok {
				found += name
			}
		}
		return found
	}
	if got := kept(); got != "ab" || d.used != 16 {
		t.Errorf("%q is kept in %d bytes, want the first two in 16", got, d.used)
	}
	d.forget(1)
	d.put([]byte("c"), codec.Header{Step: 3}, tensors)
	if header, _, _ := d.get([]byte("c")); kept() != "bc" || header.Step != 3 {
		t.Errorf("%q is kept after step 1, the last of step %d", kept(), header.Step)
	}
	if d.forgetAll(); kept() != "" || d.used != 0 {
		t.Errorf("%q is left in %d bytes", kept(), d.used)
	}
}

// TestVerifiedResultsAreAppliedAlike checks that an earlier Verify of a result makes no difference
// to the weights, and that a result that was never verified is still checked.
func TestVerifiedResultsAreAppliedAlike(t *testing.T) {
	requireTorch(t)
	verified, plain := newTestTrainer(t), newTestTrainer(t)
	for step := uint32(1); step <= 3; step++ {
		batch := toyBatch(uint64(2*step), uint64(2*step+2))
		payload, _, err := verified.Train(t.Context(), step, batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := plain.Train(t.Context(), step, batch, nil); err != nil {
			t.Fatal(err)
		}
		if err := verified.Verify(payload, step, batch.ID, verified.key); err != nil {
			t.Fatal(err)
		}
		if _, _, ok := verified.reader.decoded.get(payload); !ok {
			t.Error("verified results are not kept")
		}
		bad := append([]byte(nil), payload...)
		bad[len(bad)-1] ^= 1
		for _, trainer := range []*Trainer{verified, plain} {
			if err := trainer.Apply(t.Context(), step, [][]byte{bad[:len(bad)-1]}, nil, false); err == nil {
				t.Error("a truncated result was applied")
			}
			if err := trainer.Apply(t.Context(), step, [][]byte{payload}, nil, true); err != nil {
				t.Fatal(err)
			}
		}
		if verified.reader.decoded.used != 0 {
			t.Errorf("%d bytes remain for applied steps", verified.reader.decoded.used)
		}
	}
	for i, w := range verified.weights() {
		for j := range w {
			if w[j] != plain.weights()[i][j] {
				t.Fatalf("weight %d of tensor %d: %v and %v", j, i, w[j], plain.weights()[i][j])
			}
		}
	}
}
