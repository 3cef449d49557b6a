package keep

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
)

func TestPruneCheckpoints(t *testing.T) {
	dir := t.TempDir()
	prefix := checkpointPrefix("my run/..")
	if prefix != "my_run_..-step" {
		t.Fatalf("prefix %q", prefix)
	}
	for _, step := range []int{9, 10, 100, 2} {
		if err := writeCheckpoint(filepath.Join(dir, prefix+strconv.Itoa(step)), clienttest.Model()); err != nil {
			t.Fatal(err)
		}
	}
	// These are not checkpoints of the run.
	others := []string{"other-step1", prefix + "01", prefix + "x", prefix}
	for _, name := range others {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// This is a different file of the user.
	if err := os.WriteFile(filepath.Join(dir, prefix+"2", "notes.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := pruneCheckpoints(dir, prefix, 2, 100, 0); err == nil {
		t.Error("a folder with other files was removed, or skipped without a report")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	want := append(others, prefix+"2", prefix+"10", prefix+"100")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUnfinishedCheckpointsAreRemoved checks that the unfinished checkpoints of a client that was
// killed while it saved are removed, whatever their steps.
func TestUnfinishedCheckpointsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	prefix, random := checkpointPrefix("run"), strings.Repeat("A", 26)
	for _, name := range []string{"." + prefix + "7." + random, ".other-step7." + random} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	removeUnfinished(dir, prefix, slog.New(slog.DiscardHandler))
	removeUnfinished(filepath.Join(dir, "none"), prefix, nil) // nothing to report
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != ".other-step7."+random {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestCheckpointOfAnotherRunIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run-step3")
	first, other := clienttest.Model(), clienttest.Model()
	other.Step = first.Step + 1
	for range 2 { // a restarted client may have saved it before
		if err := writeCheckpoint(dir, first); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeCheckpoint(dir, other); !errors.Is(err, errOtherCheckpoint) {
		t.Errorf("got %v, want %v", err, errOtherCheckpoint)
	}
	kept, err := checkpoint.ReadDir(dir)
	if err != nil || kept.Manifest().Digest() != first.Manifest().Digest() {
		t.Errorf("the first checkpoint is missing (%v)", err)
	}
}
