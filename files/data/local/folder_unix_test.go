//go:build unix

package local

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestANamedPipeIsNotWaitedFor would hang.
func TestANamedPipeIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "a.ds"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{SeqLen: 4, TokenSize: 2}); err == nil || !strings.Contains(err.Error(), "a.ds: not a regular file") {
		t.Errorf("got %v", err)
	}
}
