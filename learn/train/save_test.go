package train

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestSaveIsTheSameWithoutCopies: a folder holds what Snapshot and OptimizerState say.
func TestSaveIsTheSameWithoutCopies(t *testing.T) {
	trainer := newTestTrainer(t)
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 4)); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "saved")
	note := func(s *OptimizerState) { s.DataIndex, s.Settings = 4, "{}" }
	if err := trainer.Save(t.Context(), dir, note); err != nil {
		t.Fatal(err)
	}
	want, err := trainer.Snapshot(t.Context())
	state, failed := trainer.OptimizerState(t.Context())
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	note(&state)
	if got, err := checkpoint.ReadDir(dir); err != nil || got.Manifest().Digest() != want.Manifest().Digest() {
		t.Errorf("the folder holds another model: %v", err)
	}
	path := filepath.Join(t.TempDir(), OptimizerFile)
	if err := state.Write(path); err != nil {
		t.Fatal(err)
	}
	expected, err := os.ReadFile(path)
	saved, failed := os.ReadFile(filepath.Join(dir, OptimizerFile))
	if err != nil || failed != nil || !bytes.Equal(saved, expected) {
		t.Errorf("the folder holds another momentum: %v, %v", err, failed)
	}
	if _, _, err := trainer.Train(t.Context(), 2, toyBatch(4, 8), nil); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Save(t.Context(), dir, note); !errors.Is(err, ErrStep) {
		t.Errorf("saved while a result waits: %v", err)
	}
}
