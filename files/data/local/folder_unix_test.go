//go:build unix

package local

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/psyche-go/psyche/base/golden"
)

// TestANamedPipeIsNotWaitedFor would hang.
func TestANamedPipeIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "a.ds"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, Options{SeqLen: 4, TokenSize: 2})
	golden.Message(t, "named pipe", err)
}
