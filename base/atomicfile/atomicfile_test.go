package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteReplacesAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, content := range []string{"old", "new", ""} {
		if err := Write(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("content %q, error %v, want %q", got, err, content)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, error %v, want 0640", info.Mode(), err)
	}
	checkAlone(t, path)
}

// TestFailedWriteLeavesNoTemporaryFile makes the rename fail: its target is a folder.
func TestFailedWriteLeavesNoTemporaryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(filepath.Join(path, "inner"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("new"), 0o600); err == nil {
		t.Error("a file replaced a folder")
	}
	checkAlone(t, path)
}

func TestWriteNeedsAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "file")
	if err := Write(path, nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
	if err := SyncFolder(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
	if err := SyncFolder(filepath.Dir(filepath.Dir(path))); err != nil {
		t.Error(err)
	}
}

// checkAlone checks that a file is the only one in its folder, so that no temporary file is left.
func checkAlone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("files %v, error %v, want only %s", entries, err, filepath.Base(path))
	}
}
