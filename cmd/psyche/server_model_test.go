package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// TestRecordedModels checks that a server finds recorded models by run and digest in the folders of members,
// and no other model.
func TestRecordedModels(t *testing.T) {
	snapshot, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	digest, parent := snapshot.Manifest().Digest(), t.TempDir()
	for _, folder := range []string{"runs/a/run-step3", "runs/b/run-commit3", "elsewhere/run-step3"} {
		facts := checkpoint.Facts{RunID: "run", Step: 3, Digest: fmt.Sprintf("%x", digest)}
		if err := checkpoint.WriteDir(filepath.Join(parent, folder), snapshot, facts.Extra()); err != nil {
			t.Fatal(err)
		}
	}
	r := &recordedModels{patterns: []string{filepath.Join(parent, "none"), filepath.Join(parent, "runs", "*")}, logger: slog.New(slog.DiscardHandler)}
	first := r.model(t.Context(), "run", digest)
	if first == nil || first.Size() == 0 {
		t.Fatal("the recorded model is not served")
	}
	if again := r.model(t.Context(), "run", digest); again != first {
		t.Error("the model is hashed again")
	}
	if r.model(t.Context(), "other", digest) != nil || r.model(t.Context(), "run", [32]byte{1}) != nil {
		t.Error("another model is served")
	}
	r.patterns = r.patterns[:1]
	if r.held = nil; r.model(t.Context(), "run", digest) != nil {
		t.Error("a model outside the folders is served")
	}
}
