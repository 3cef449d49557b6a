package filelock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/golden"
)

// says checks that err is want and that its text contains all words.
func says(t *testing.T, err, want error, words ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not contain %q", err, word)
		}
	}
}

func closed(t *testing.T, file *os.File) {
	t.Helper()
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOneHolder locks files and folders twice in one process. Two open files of one process are
// different holders.
func TestOneHolder(t *testing.T) {
	if !Supported {
		t.Skip("this system has no locks")
	}
	for name, open := range map[string]func(string) (*os.File, error){
		"file":   func(path string) (*os.File, error) { return Open(path, 0o600) },
		"folder": func(path string) (*os.File, error) { return OpenFolder(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locked")
			first, err := open(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = open(path)
			says(t, err, ErrHeld, path)
			other, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			says(t, Try(other), ErrHeld, path)
			closed(t, first)
			if err := Try(other); err != nil {
				t.Errorf("after the first was closed: %v", err)
			}
			closed(t, other)
		})
	}
}

func TestMissingFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "locked")
	_, err := Open(path, 0o600)
	says(t, err, fs.ErrNotExist, path)
	folder, err := OpenFolder(path, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, folder)
}

func TestSomethingElseIsThere(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir, 0o600)
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a folder opened as a file: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(file, 0o700); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file opened as a folder: %v", err)
	}
	locked, err := Open(file, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, locked)
	if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
		t.Errorf("locking changed the file to %q, %v", text, err)
	}
}

// TestRemovedFile checks that IsAt reports false for the earlier path of a renamed or replaced
// file.
func TestRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locked")
	file, err := Open(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, file)
	if !IsAt(file, path) {
		t.Fatal("the open file is not at its path")
	}
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if IsAt(file, path) || !IsAt(file, path+".old") {
		t.Error("the renamed file is still found at its earlier path")
	}
	next, err := Open(path, 0o600) // a different file
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, next)
	if IsAt(file, path) || !IsAt(next, path) {
		t.Error("IsAt confuses two files")
	}
}

// TestOpenOutlivesRemoval opens a file that a different process removes after all attempts
// except the last, and then after all attempts.
func TestOpenOutlivesRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locked")
	removals := 0
	open := func() (*os.File, error) {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if removals > 0 {
			removals--
			err = errors.Join(err, os.Remove(path))
		}
		return file, err
	}
	removals = attempts - 1
	file, err := again(path, open)
	if err != nil {
		t.Fatalf("the last attempt should succeed: %v", err)
	}
	if !IsAt(file, path) {
		t.Error("the locked file was removed")
	}
	closed(t, file)
	removals = attempts
	_, err = again(path, open)
	says(t, err, ErrHeld, path, errGone.Error())
}

// TestWait waits for a holder that closes its file, and for a holder that keeps it.
func TestWait(t *testing.T) {
	if !Supported {
		t.Skip("this system has no locks")
	}
	path := filepath.Join(t.TempDir(), "locked")
	synctest.Test(t, func(t *testing.T) {
		first, err := Wait(t.Context(), path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { closed(t, first) })
		begun := time.Now()
		second, err := Wait(t.Context(), path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited < time.Minute || waited > time.Minute+look {
			t.Errorf("waited %v", waited)
		}
		why := errors.New("no more time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
		defer cancel()
		_, err = Wait(ctx, path, 0o600)
		says(t, err, why, path)
		says(t, err, ErrHeld)
		closed(t, second)
	})
}

func TestFileSystemWithoutLocks(t *testing.T) {
	if !Supported {
		t.Skip("this system has no locks")
	}
	unsupported := explain("/mnt/model", errors.ErrUnsupported)
	says(t, unsupported, errors.ErrUnsupported)
	golden.Message(t, "a file system without locks", unsupported)
	golden.Message(t, "a lock that is held", explain("/mnt/model", ErrHeld))
}

func TestClosedFile(t *testing.T) {
	if !Supported {
		t.Skip("this system has no locks")
	}
	file, err := Open(filepath.Join(t.TempDir(), "locked"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, file)
	if err := Try(file); err == nil || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), file.Name()) {
		t.Errorf("error %v", err)
	}
}
