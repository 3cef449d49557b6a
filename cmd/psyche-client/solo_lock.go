package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/base/filelock"
)

// errFolderInUse means that another process writes a folder.
var errFolderInUse = errors.New("another process is using it")

// folderInUse is errFolderInUse with the error of the lock, which has the process.
type folderInUse struct{ held error }

func (e folderInUse) Error() string { return errFolderInUse.Error() + filelock.By(e.held) }

func (e folderInUse) Unwrap() []error { return []error{errFolderInUse, e.held} }

// folderClaim is this process's exclusive right to write a folder. The lock is a file next to the
// folder, because each checkpoint replaces the folder.
type folderClaim struct{ file *os.File }

// claimFolder locks the folder for a training, and checks that the training can be saved there.
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

// lockBeside creates and locks the lock file. It retries if the previous holder removes the file
// meanwhile.
func lockBeside(dir string) (*folderClaim, error) {
	path := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".lock")
	file, err := filelock.Open(path, 0o600)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%s: %w; choose another folder", dir, folderInUse{err})
	}
	if err != nil {
		return nil, err
	}
	return &folderClaim{file}, nil
}

// release releases the folder for other processes.
func (c *folderClaim) release() error {
	return errors.Join(os.Remove(c.file.Name()), c.file.Close())
}
