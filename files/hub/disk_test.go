package hub_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/diskspace/diskspacetest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/hub"
)

// TestNoSpaceForASnapshot checks that a download that does not fit is refused before the first
// file, and that only missing files count.
func TestNoSpaceForASnapshot(t *testing.T) {
	s := newServer(t)
	big := noise(300_000, 1)
	s.Put(repo, map[string][]byte{"a.bin": big, "the-same.bin": big, "config.json": []byte("{}")})
	free := uint64(0)
	c := newClient(t, s, func(o *hub.Options) {
		o.Space = func(string) diskspace.Space { return diskspace.Bytes(free) }
	})
	for _, free = range []uint64{0, 1, 300_000} {
		_, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{})
		if !errors.Is(err, diskspace.ErrTooLittle) {
			t.Errorf("%d bytes free: %v", free, err)
		}
		golden.Message(t, fmt.Sprintf("%d bytes free", free), err)
		if blobs, _ := filepath.Glob(filepath.Join(c.CacheDir, "*", "blobs", "*")); len(blobs) > 0 {
			t.Errorf("%v were written", blobs)
		}
	}
	free = 400_000
	got, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{})
	if err != nil || !bytes.Equal(readAll(t, got.Dir)["the-same.bin"], big) {
		t.Fatal(err)
	}
	free = 10_000
	s.Put(repo, map[string][]byte{"README.md": []byte("new")})
	if _, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{}); err != nil {
		t.Errorf("only small files are missing: %v", err)
	}
}

// TestSpaceOfALinkedRepository checks that the free space of the disk with a repository's folder counts.
// Users move a large repository to another disk, and link it.
func TestSpaceOfALinkedRepository(t *testing.T) {
	s := newServer(t)
	s.Put(repo, map[string][]byte{"a.bin": noise(300_000, 1)})
	other := t.TempDir()
	c := newClient(t, s, func(o *hub.Options) {
		o.Space = func(path string) diskspace.Space {
			if real, err := filepath.EvalSymlinks(diskspace.Folder(path)); err == nil && real == other {
				return diskspace.Bytes(1 << 20)
			}
			return diskspace.Bytes(0)
		}
	})
	if err := os.MkdirAll(c.CacheDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(c.CacheDir, "models--"+strings.ReplaceAll(repo, "/", "--"))); err != nil {
		t.Skip(err)
	}
	if _, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{}); err != nil {
		t.Error(err)
	}
}

// TestDiskFillsDuringADownload checks that the error names the file and the way to resume, and that
// the next download resumes.
func TestDiskFillsDuringADownload(t *testing.T) {
	s := newServer(t)
	big := noise(2<<20, 1)
	s.Put(repo, map[string][]byte{"model.safetensors": big})
	dir := diskspacetest.Mount(t, 4<<20)
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, s, func(o *hub.Options) {
		o.CacheDir, o.Space = dir, func(string) diskspace.Space { return diskspace.Space{} }
	})
	_, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{})
	if !diskspace.IsFull(err) {
		t.Fatal(err)
	}
	golden.Message(t, "full", err)
	if whole, _ := filepath.Glob(filepath.Join(dir, "*", "snapshots", "*", "model*")); len(whole) > 0 {
		t.Errorf("%v look complete", whole)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	var last hub.Progress
	got, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{Progress: func(p hub.Progress) { last = p }})
	if err != nil || !bytes.Equal(readAll(t, got.Dir)["model.safetensors"], big) {
		t.Fatal(err)
	}
	if last.TransferredBytes >= int64(len(big)) {
		t.Errorf("%d bytes were transferred again", last.TransferredBytes)
	}
}
