//go:build unix

package samples

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipe checks that a pipe does not block a reader.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.json")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); !errors.Is(err, ErrInvalid) {
		t.Errorf("a pipe: %v, want %v", err, ErrInvalid)
	}
	if Watch(path).Of("") != nil {
		t.Error("a pipe has samples")
	}
}
