package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	r := newRecordedModels([]string{filepath.Join(parent, "none"), filepath.Join(parent, "runs", "*")}, slog.New(slog.DiscardHandler))
	first := r.model(t.Context(), "run", digest)
	if first == nil || first.Size() == 0 {
		t.Fatal("the recorded model is not served")
	}
	if r.model(t.Context(), "other", digest) != nil || r.model(t.Context(), "run", [32]byte{1}) != nil {
		t.Error("another model is served")
	}
	if again := r.model(t.Context(), "run", digest); again != first {
		t.Error("the model is hashed again")
	}
	r.patterns, r.search = r.patterns[:1], time.Time{}
	if clear(r.hashed); r.model(t.Context(), "run", digest) != nil {
		t.Error("a model outside the folders is served")
	}
}

// TestRecordedModelsAreHashedOnce checks that clients that request different models in turn cannot make
// the server hash a model for each part, that a request for a hashed model does not wait for other models,
// and that the server uses another member's copy when a folder is removed.
func TestRecordedModelsAreHashedOnce(t *testing.T) {
	snapshot, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	write := func(folder string, digest byte) string {
		t.Helper()
		facts := checkpoint.Facts{RunID: "run", Step: uint32(digest), Digest: fmt.Sprintf("%x", [32]byte{digest})}
		dir := filepath.Join(parent, folder)
		if err := checkpoint.WriteDir(dir, snapshot, facts.Extra()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	old := write("a/run-step3", 3)
	write("b/run-step3", 3)
	write("b/run-step4", 4)
	large := write("b/run-step5", 5)
	tensors, err := filepath.Glob(filepath.Join(large, "*.safetensors"))
	if err != nil || len(tensors) == 0 {
		t.Fatal(tensors, err)
	}
	for _, file := range tensors {
		if err := os.Truncate(file, 3); err != nil { // cannot be served
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	r := newRecordedModels([]string{filepath.Join(parent, "*")}, slog.New(slog.NewTextHandler(&log, nil)))
	first := r.model(t.Context(), "run", [32]byte{3})
	for range 3 {
		for digest := byte(3); digest <= 5; digest++ {
			if got := r.model(t.Context(), "run", [32]byte{digest}); (got != nil) != (digest < 5) || digest == 3 && got != first {
				t.Fatalf("model %d: %v", digest, got)
			}
		}
	}
	if n := strings.Count(log.String(), "serving a recorded model"); n != 2 {
		t.Errorf("the server hashed two models %d times", n)
	}
	if n := strings.Count(log.String(), "cannot serve"); n != 1 {
		t.Errorf("the server tried a damaged model %d times", n)
	}
	r.turn <- struct{}{} // as if it hashed another model
	if r.model(t.Context(), "run", [32]byte{3}) != first {
		t.Error("a hashed model is not served")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if r.model(ended, "run", [32]byte{6}) != nil {
		t.Error("a model is served that no folder has")
	}
	<-r.turn
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	next := r.model(t.Context(), "run", [32]byte{3})
	if next == nil || next == first {
		t.Fatal("the copy of another member is not served")
	}
	if _, err := next.ReadAt(make([]byte, next.Size()), 0); err != nil {
		t.Error(err)
	}
}
