package filelock

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// nobody is the ID of a user who owns no files of the test.
const nobody = 65534

// asNobody makes the thread of a test access files as a user without permissions, because root may
// write anywhere. The thread ends when the test ends.
func asNobody(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread() // never unlocked, so that no other goroutine runs on the thread
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
}

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for folder, mode := range map[string]fs.FileMode{dir: 0o555, filepath.Dir(dir): 0o755} { // the parent must be readable for the user nobody
		if err := os.Chmod(folder, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	t.Run("without rights", func(t *testing.T) {
		asNobody(t)
		for _, path := range []string{there, filepath.Join(dir, "new")} {
			if _, err := Open(path, 0o600); err == nil {
				t.Errorf("%s was opened", path)
			} else {
				says(t, err, fs.ErrPermission, path)
			}
		}
		if _, err := OpenFolder(filepath.Join(dir, "folder"), 0o700); err == nil {
			t.Error("a folder was created in a read-only folder")
		}
		folder, err := OpenFolder(dir, 0o700) // locking a folder needs no write permission
		if err != nil {
			t.Fatal(err)
		}
		closed(t, folder)
	})
}
