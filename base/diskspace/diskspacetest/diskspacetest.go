// Package diskspacetest mounts small file systems for tests.
package diskspacetest

import (
	"os/exec"
	"strconv"
	"testing"
)

// Mount returns a folder with a file system of the given size in bytes. It skips the test if this
// user may not mount a file system.
func Mount(t testing.TB, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+strconv.Itoa(bytes), "psyche-test", dir).CombinedOutput()
	if err != nil {
		t.Skipf("needs the right to mount a file system: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmount %s: %v: %s", dir, err, out)
		}
	})
	return dir
}
