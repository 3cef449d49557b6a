package main

import (
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/hub/hubtest"
)

func TestUploadAndDownload(t *testing.T) {
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"] = true
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
	t.Setenv("HF_TOKEN", "hf_write")
	want, err := checkpoint.ReadDir(filepath.Join("..", "..", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	digest := want.Manifest().Digest()
	if err := checkpoint.WriteDir(dir, want, checkpoint.Facts{RunID: "run", Step: 3, Digest: hex.EncodeToString(digest[:])}.Extra()); err != nil {
		t.Fatal(err)
	}
	if out := succeed(t, "upload", "--private", dir, "org/name"); !strings.HasPrefix(out, "org/name at ") || !s.IsPrivate("org/name") {
		t.Errorf("upload said %q", out)
	}
	got, err := checkpoint.ReadDir(strings.TrimSpace(succeed(t, "download", "org/name")))
	if err != nil || got.Manifest().Digest() != want.Manifest().Digest() {
		t.Errorf("downloaded another model, %v", err)
	}
	fail(t, exitFailure, "not found", "download", "org/missing")
	fail(t, exitFailure, "HF_TOKEN", "download", "org/name", "--hf-token", "hf_wrong")
	t.Setenv("HF_HUB_OFFLINE", "1")
	succeed(t, "download", "org/name")

	t.Setenv("HF_HUB_OFFLINE", "")
	testRunRepo(t, want)
}

// testRunRepo wants a run to read what everybody may read, and nothing else without consent.
func testRunRepo(t *testing.T, want checkpoint.Snapshot) {
	digest := want.Manifest().Digest()
	c := trainCommand{hubFlags: hubFlags{HubMaxConcurrentDownloads: 1}, logTo: slog.New(slog.NewTextHandler(io.Discard, nil))}
	t.Setenv("HF_HOME", t.TempDir())
	begin := coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: "org/name"}
	if _, err := c.initial(context.Background(), begin); err == nil || !strings.Contains(err.Error(), "--allow-private-repos") {
		t.Errorf("error = %v, want one that names --allow-private-repos", err)
	}
	c.AllowPrivateRepos = true
	if got, err := c.initial(context.Background(), begin); err != nil || got.Manifest().Digest() != digest {
		t.Errorf("initial model: %v", err)
	}

	handed := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointHub, Repo: "org/name", Digest: digest}
	if _, err := c.archive(context.Background(), handed); err != nil {
		t.Errorf("archive: %v", err)
	}
	handed.Digest[0]++
	if _, err := c.archive(context.Background(), handed); err == nil || strings.Contains(err.Error(), hex.EncodeToString(digest[:])) {
		t.Errorf("archive with another digest: %v", err)
	}
}
