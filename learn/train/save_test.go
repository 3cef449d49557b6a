package train

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestSaveIsTheSameWithoutCopies checks that Save writes the model of Snapshot and the state of
// OptimizerState to a folder.
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
	lent, err := trainer.LendOptimizerState(t.Context())
	if err == nil {
		note(&lent)
		err = lent.Write(path)
	}
	if saved, failed = os.ReadFile(path); err != nil || failed != nil || !bytes.Equal(saved, expected) {
		t.Errorf("the shared momentum differs: %v, %v", err, failed)
	}
	if memory := unsafe.Pointer(unsafe.SliceData(lent.Tensors[0].Data)); memory != unsafe.Pointer(&momentumOf(trainer.distro().optimizer)[0][0]) {
		t.Error("the shared momentum is a copy")
	}
	if _, _, err := trainer.Train(t.Context(), 2, toyBatch(4, 8), nil); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Save(t.Context(), dir, note); !errors.Is(err, errStep) {
		t.Errorf("saved while a result waits: %v", err)
	}
}

// TestStatesAreNotCopied checks that loading a state uses its tensors in place, without memory for
// a copy. Tensors that cannot be read in place are copied.
func TestStatesAreNotCopied(t *testing.T) {
	trainer := newTestTrainer(t)
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 4)); err != nil {
		t.Fatal(err)
	}
	state, err := trainer.OptimizerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	values, err := state.values(trainer.parameters, momentumName, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, tensor := range state.Tensors {
		if unsafe.Pointer(unsafe.SliceData(values[i])) != unsafe.Pointer(unsafe.SliceData(tensor.Data)) {
			t.Fatalf("%s is copied", tensor.Name)
		}
		shifted := append(make([]byte, 1, len(tensor.Data)+1), tensor.Data...)[1:]
		tensor.Data = shifted
		if got, err := read(tensor); err != nil || !slices.Equal(got, values[i]) {
			t.Fatalf("%s at an odd address: %v", tensor.Name, err)
		}
	}
	state.Tensors[0].Data = state.Tensors[0].Data[4:]
	if err := trainer.SetOptimizerState(t.Context(), state); !errors.Is(err, errModel) {
		t.Errorf("a tensor that is cut: %v", err)
	}
}
