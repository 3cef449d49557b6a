//go:build unix

package main

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestUnusableAuthorityKeys checks that a pipe in place of a key does not block a command, and that an error
// names a key file that other users can read.
func TestUnusableAuthorityKeys(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	a := administer(t, "--state", sampleState, "--run-id", "r")
	t.Chdir(t.TempDir())
	key, err := os.ReadFile(a.path("state/host-key.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"a", "b"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("a/host-key.json", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("b/host-key.json", key, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("b/host-key.json", 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out := a.command("set-paused", "--run-id", "r"); code != exitFailed || !strings.Contains(out, "chmod 600 b/host-key.json") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
