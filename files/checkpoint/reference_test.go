package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/safetensors"
)

// described is a tensor as scripts/reference/checkpoint_vectors.py lists it.
type described struct {
	Name   string            `json:"name"`
	DType  safetensors.DType `json:"dtype"`
	Shape  []int64           `json:"shape"`
	SHA256 string            `json:"sha256"`
}

func describe(tensors []safetensors.Tensor) []described {
	var list []described
	for _, tensor := range tensors {
		sum := sha256.Sum256(tensor.Data)
		list = append(list, described{tensor.Name, tensor.DType, tensor.Shape, hex.EncodeToString(sum[:])})
	}
	return list
}

// TestReferenceCheckpoints reads checkpoints of the reference implementations, whole and in shards,
// and checks every tensor against the description.
func TestReferenceCheckpoints(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "reference", "tensors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want []described
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for _, layout := range []string{"whole", "sharded"} {
		got, err := ReadDir(filepath.Join("testdata", "reference", layout))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, describe(got.Tensors)); diff != "" {
			t.Errorf("%s: got %s; want \"\"", layout, diff)
		}
	}
}

// TestOwnCheckpointsForReference writes the same tensors. The files are golden: the script has read
// them with the reference implementation.
func TestOwnCheckpointsForReference(t *testing.T) {
	s, err := ReadDir(filepath.Join("testdata", "reference", "whole"))
	if err != nil {
		t.Fatal(err)
	}
	for layout, size := range map[string]int64{"whole": maxShardSize, "sharded": 64} {
		kept := filepath.Join("testdata", "own", layout)
		if golden.Update() {
			if err := writeDir(kept, s, size, nil); err != nil {
				t.Fatal(err)
			}
		}
		dir := filepath.Join(t.TempDir(), layout)
		if err := writeDir(dir, s, size, nil); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadDir(kept)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range want {
			a, err := os.ReadFile(filepath.Join(kept, entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil || !bytes.Equal(a, b) {
				t.Errorf("%s/%s differs from the golden file: %v", layout, entry.Name(), err)
			}
		}
	}
}
