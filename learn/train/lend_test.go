package train

import (
	"errors"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
)

// TestLend checks that Lend passes the same model as Snapshot returns, in the model's own memory.
func TestLend(t *testing.T) {
	trainer := newTestTrainer(t)
	want, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := want.Manifest().Digest()
	var lent []safetensors.Tensor
	stop := errors.New("stop")
	err = trainer.Lend(t.Context(), func(s checkpoint.Snapshot) error {
		if s.Manifest().Digest() != before {
			t.Error("another model is lent")
		}
		lent = s.Tensors
		return stop
	})
	if !errors.Is(err, stop) {
		t.Errorf("lending ended with %v", err)
	}
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 2)); err != nil {
		t.Fatal(err)
	}
	want.Tensors = lent
	if want.Manifest().Digest() == before {
		t.Error("a copy was lent")
	}
}
