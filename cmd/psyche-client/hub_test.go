package main

import (
	"context"
	"encoding/hex"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/modelsource"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub/hubtest"
	"github.com/psyche-go/psyche/files/objstore/gcs/fakegcs"
	"github.com/psyche-go/psyche/record/event"
)

func TestUploadAndDownload(t *testing.T) {
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"] = true
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_CACHE", "")
	t.Setenv("HF_TOKEN", "hf_write")
	want, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	digest := want.Manifest().Digest()
	if err := checkpoint.WriteDir(dir, want, checkpoint.Facts{RunID: "run", Step: 3, Digest: hex.EncodeToString(digest[:])}.Extra()); err != nil {
		t.Fatal(err)
	}
	if out := succeed(t, "upload", "--private", dir, "org/name"); !strings.HasPrefix(out, "org/name at ") || !s.IsPrivate("org/name") {
		t.Errorf("upload printed %q", out)
	}
	got, err := checkpoint.ReadDir(strings.TrimSpace(succeed(t, "download", "org/name")))
	if err != nil || got.Manifest().Digest() != want.Manifest().Digest() {
		t.Errorf("downloaded a different model, %v", err)
	}
	fail(t, exitFailure, "missing repository", "download", "org/missing")
	fail(t, exitFailure, "wrong token", "download", "org/name", "--hf-token", "hf_wrong")
	t.Setenv("HF_HUB_OFFLINE", "1")
	succeed(t, "download", "org/name")

	t.Setenv("HF_HUB_OFFLINE", "")
	testRunRepo(t, want)
}

// sourceOf returns the source of models of a client.
func sourceOf(t *testing.T, uploads uploadFlags) *modelsource.Source {
	t.Helper()
	c := trainCommand{RunID: "run", memberFlags: memberFlags{uploadFlags: uploads, hubFlags: hubFlags{HubMaxConcurrentDownloads: 1}, networkFlags: networkFlags{MaxBlobMemory: 1}}}
	source, err := c.modelSource(identity.ID{1}, event.Unwritten(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// testRunRepo checks that a run reads public files, and reads private files only with the user's
// consent.
func testRunRepo(t *testing.T, want checkpoint.Snapshot) {
	digest := want.Manifest().Digest()
	c := sourceOf(t, uploadFlags{})
	t.Setenv("HF_HOME", t.TempDir())
	begin := coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: "org/name"}
	if _, err := c.Initial(context.Background(), begin); err == nil || !strings.Contains(err.Error(), "--allow-private-repos") {
		t.Errorf("error = %v, want --allow-private-repos in it", err)
	}
	c.AllowPrivateRepos = true
	if got, err := c.Initial(context.Background(), begin); err != nil || got.Manifest().Digest() != digest {
		t.Errorf("initial model: %v", err)
	}
	// The cache has the files now, as if the user's own tools had downloaded them.
	client, err := c.Hub(true)
	if err != nil {
		t.Fatal(err)
	}
	commit, err := client.Resolve(t.Context(), "org/name", "main")
	if err != nil {
		t.Fatal(err)
	}
	pinned := begin
	pinned.Revision = commit
	c.AllowPrivateRepos = false
	for _, offline := range []string{"", "1"} {
		t.Setenv("HF_HUB_OFFLINE", offline)
		if _, err := c.Initial(t.Context(), pinned); err == nil || !strings.Contains(err.Error(), "--allow-private-repos") {
			t.Errorf("a private model of the cache (offline %q): error = %v, want --allow-private-repos in it", offline, err)
		}
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	c.AllowPrivateRepos = true

	handed := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointHub, Repo: "org/name", Digest: digest}
	if _, err := c.Archive(context.Background(), handed, coordinator.Location{}); err != nil {
		t.Errorf("archive: %v", err)
	}
	handed.Digest[0]++
	if _, err := c.Archive(context.Background(), handed, coordinator.Location{}); err == nil || strings.Contains(err.Error(), hex.EncodeToString(digest[:])) {
		t.Errorf("archive with a different digest: %v", err)
	}
}

// TestUploadAndDownloadOfBuckets checks both directions with the real driver and a fake of its
// service.
func TestUploadAndDownloadOfBuckets(t *testing.T) {
	server := fakegcs.New(t)
	t.Setenv("STORAGE_EMULATOR_HOST", server.Host)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	want, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	digest := want.Manifest().Digest()
	dir := filepath.Join(t.TempDir(), "model")
	facts := checkpoint.Facts{RunID: "run", Step: 3, Digest: hex.EncodeToString(digest[:])}
	if err := checkpoint.WriteDir(dir, want, facts.Extra()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out := succeed(t, "upload", dir, "gs://bucket/some/where"); out != "gs://bucket/some/where/run-step3\n" {
			t.Errorf("upload printed %q", out)
		}
	}
	got, err := checkpoint.ReadDir(strings.TrimSpace(succeed(t, "download", "gs://bucket/some/where/run-step3")))
	if err != nil || got.Manifest().Digest() != digest {
		t.Errorf("downloaded a different model, %v", err)
	}
	fail(t, exitFailure, "empty prefix", "download", "gs://bucket/nothing")
	fail(t, exitFailure, "path that leads up", "download", "gs://bucket/a/../b")
	fail(t, exitFailure, "revision of a bucket", "download", "gs://bucket/a", "--revision", "main")
	testBucketOfRun(t, digest)
}

// testBucketOfRun reads from the bucket a run's initial model, and a model that no member provides.
func testBucketOfRun(t *testing.T, digest [32]byte) {
	c := sourceOf(t, uploadFlags{})
	begin := coordinator.Checkpoint{Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: "some/where/run-step3"}
	if got, err := c.Initial(t.Context(), begin); err != nil || got.Manifest().Digest() != digest {
		t.Errorf("initial model: %v", err)
	}
	wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointDummy, Digest: digest, Step: 3}
	place := coordinator.Location{Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: "some/where/run-step3"}
	if got, err := c.Archive(t.Context(), wanted, place); err != nil || got.Manifest().Digest() != digest {
		t.Errorf("a member's upload: %v", err)
	}
	flags := uploadFlags{GCSBucket: "bucket", GCSPrefix: "some/where", UploadTimeout: time.Minute}
	if err := flags.checkUploads("run", "dir"); err != nil {
		t.Error(err)
	}
	c = sourceOf(t, flags)
	if got, err := c.Archive(t.Context(), wanted, coordinator.Location{}); err != nil || got.Manifest().Digest() != digest {
		t.Errorf("--gcs-bucket: %v", err)
	}
	wanted.Step = 4
	if _, err := c.Archive(t.Context(), wanted, coordinator.Location{}); err == nil {
		t.Error("found a step that does not exist")
	}
}

// TestUploadsReachTheRun uploads to both kinds of location and checks that the run gets the
// locations in the form in which it stores them.
func TestUploadsReachTheRun(t *testing.T) {
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"] = true
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_TOKEN", "hf_write")
	t.Setenv("STORAGE_EMULATOR_HOST", fakegcs.New(t).Host)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	snapshot, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	digest := snapshot.Manifest().Digest()
	facts := checkpoint.Facts{RunID: "run", Step: 3, Digest: hex.EncodeToString(digest[:])}
	for _, flags := range []uploadFlags{{HubRepo: "org/name"}, {GCSBucket: "bucket", GCSPrefix: "runs/"}} {
		flags.UploadTimeout = time.Minute
		parent := t.TempDir()
		dir := filepath.Join(parent, "run-step3")
		if err := checkpoint.WriteDir(dir, snapshot, facts.Extra()); err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.DiscardHandler)
		c := sourceOf(t, flags)
		u, err := flags.openUploads(t.Context(), hubFlags{HubMaxConcurrentDownloads: 1}, logger)
		if err != nil {
			t.Fatal(err)
		}
		reported := make(chan coordinator.Location, 1)
		u.start("run", parent, logger, func(_ checkpoint.Facts, at coordinator.Location) { reported <- at })
		u.runner.Offer(dir, facts)
		if err := flags.finishUploads(t.Context(), u, logger); err != nil {
			t.Fatal(err)
		}
		at := <-reported
		wanted := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointDummy, Digest: digest, Step: 3}
		if got, err := c.Archive(t.Context(), wanted, at); err != nil || got.Manifest().Digest() != digest {
			t.Errorf("%s: got %v; want nil error and got.Manifest().Digest() == digest", at, err)
		}
		if at.Kind == coordinator.CheckpointHub && len(at.Revision) != 40 {
			t.Errorf("%s is not a commit", at)
		}
	}
}

// TestPrivateUploadsAreNotReported checks that a client reports the location of a checkpoint to the
// run, which is public, only if the location is public or the user allows the report.
func TestPrivateUploadsAreNotReported(t *testing.T) {
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"] = true
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_TOKEN", "hf_write")
	s.Put("org/was-private", map[string][]byte{"notes.txt": []byte("x")})
	s.Restrict("org/was-private", true, false)
	snapshot, err := checkpoint.ReadDir(filepath.Join("..", "..", "files", "checkpoint", "testdata", "own", "sharded"))
	if err != nil {
		t.Fatal(err)
	}
	digest := snapshot.Manifest().Digest()
	facts := checkpoint.Facts{RunID: "run", Step: 3, Digest: hex.EncodeToString(digest[:])}
	for _, test := range []struct {
		flags    uploadFlags
		reported bool
	}{
		{uploadFlags{HubRepo: "org/open"}, true},
		{uploadFlags{HubRepo: "org/closed", HubPrivate: true}, false},
		{uploadFlags{HubRepo: "org/was-private"}, false},
		{uploadFlags{HubRepo: "org/shown", HubPrivate: true, ReportPrivate: true}, true},
	} {
		test.flags.UploadTimeout = time.Minute
		parent := t.TempDir()
		dir := filepath.Join(parent, "run-step3")
		if err := checkpoint.WriteDir(dir, snapshot, facts.Extra()); err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.DiscardHandler)
		u, err := test.flags.openUploads(t.Context(), hubFlags{HubMaxConcurrentDownloads: 1}, logger)
		if err != nil {
			t.Fatal(err)
		}
		reported := make(chan coordinator.Location, 1)
		u.start("run", parent, logger, func(_ checkpoint.Facts, at coordinator.Location) { reported <- at })
		u.runner.Offer(dir, facts)
		if err := test.flags.finishUploads(t.Context(), u, logger); err != nil {
			t.Fatal(err)
		}
		if len(reported) == 1 != test.reported || s.Files(test.flags.HubRepo, "main") == nil {
			t.Errorf("%+v: reported to the run: %v, want %v", test.flags, len(reported) == 1, test.reported)
		}
	}
}
