package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/files/safetensors"
)

// makeUnfinished creates a temporary folder for dir. It belongs to this process until release is
// called or the process ends in any way.
func makeUnfinished(dir string) (path string, release func(), err error) {
	for range 3 {
		path = filepath.Join(filepath.Dir(dir), safetensors.UnfinishedName(filepath.Base(dir)))
		if err = os.Mkdir(path, 0o777); err != nil {
			return "", nil, err
		}
		var folder *os.File
		if folder, err = hold(path); err == nil {
			return path, func() { _ = folder.Close() }, nil
		}
	}
	return "", nil, err
}

// errLost means that another process considered a new folder abandoned, and removed it before it
// was locked.
var errLost = errors.New("another process removed the new folder")

// hold opens a new folder and locks it.
func hold(path string) (*os.File, error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	// On a file system without locks, the folder stays unlocked. There, no process can lock it
	// either, so none considers it abandoned.
	if !errors.Is(filelock.Try(folder), filelock.ErrHeld) && filelock.IsAt(folder, path) {
		return folder, nil
	}
	return nil, errors.Join(errLost, folder.Close())
}

// RemoveUnfinished removes the remains of killed processes in a folder of checkpoints. These are
// hidden temporary folders for which is(final name) is true. RemoveUnfinished keeps folders that a
// process is writing, here or on another machine that uses the same locks. It also keeps folders
// that contain something other than regular files.
func RemoveUnfinished(parent string, is func(name string) bool) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("look for unfinished checkpoints: %w", err)
	}
	var failed error
	for _, entry := range entries {
		if base, ok := safetensors.Unfinished(entry.Name()); ok && entry.IsDir() && is(base) {
			if err := removeAbandoned(filepath.Join(parent, entry.Name())); err != nil {
				failed = errors.Join(failed, fmt.Errorf("remove an unfinished checkpoint: %w", err))
			}
		}
	}
	return failed
}

// RemoveUnfinishedOf is RemoveUnfinished for the remains of one checkpoint folder, dir.
func RemoveUnfinishedOf(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return RemoveUnfinished(filepath.Dir(dir), func(name string) bool { return name == filepath.Base(dir) })
}

// abandonedAfter is the age of an unused folder at which it counts as abandoned on systems without
// locks.
const abandonedAfter = 7 * 24 * time.Hour

// abandoned reports whether the process that created a folder has ended. If so, it locks the
// folder.
func abandoned(folder *os.File) bool {
	if filelock.Supported {
		return filelock.Try(folder) == nil
	}
	info, err := folder.Stat()
	return err == nil && time.Since(info.ModTime()) > abandonedAfter
}

// RemoveDir removes a folder that contains only a checkpoint. It first gives the folder the name of
// an unfinished one. If the process is killed during the removal, the remains are then removed as
// unfinished. Under the old name, they could be neither loaded nor replaced.
func RemoveDir(dir string) error {
	err := CheckRemovable(dir)
	if err == nil {
		aside := filepath.Join(filepath.Dir(dir), safetensors.UnfinishedName(filepath.Base(dir)))
		if err = os.Rename(dir, aside); err == nil {
			err = os.RemoveAll(aside)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove checkpoint %s: %w", dir, err)
	}
	return nil
}

func removeAbandoned(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	if !abandoned(folder) {
		return nil
	}
	entries, err := folder.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			return nil
		}
	}
	return os.RemoveAll(path)
}
