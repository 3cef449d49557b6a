package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errFolderInUse says that another process writes a folder.
var errFolderInUse = errors.New("another process uses it; give each training a folder of its own")

// folderClaim is the right of this process to write a folder: a locked file beside it, because
// each checkpoint is a new folder in its place.
type folderClaim struct{ file *os.File }

// claimFolder finds out before a training, not after it, whether it can be saved.
func claimFolder(dir string) (*folderClaim, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return nil, err
	}
	c, err := lockBeside(dir)
	if err != nil {
		return nil, err
	}
	if err := checkWritable(dir); err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

// lockBeside makes and locks the file. Whoever had it before removes it: a lock on a removed
// file is worth nothing.
func lockBeside(dir string) (*folderClaim, error) {
	path := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".lock")
	for range 10 {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lockFile(file); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), file.Close())
		}
		locked, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(locked, there) {
			return &folderClaim{file}, nil
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: %w", dir, errFolderInUse)
}

// release gives the folder to the next process.
func (c *folderClaim) release() error {
	return errors.Join(os.Remove(c.file.Name()), c.file.Close())
}
