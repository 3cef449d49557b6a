//go:build unix

package main

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes a file for this process until it is closed.
func lockFile(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errFolderInUse
	}
	return err
}

// checkWritable refuses a folder whose files this process may not replace.
func checkWritable(dir string) error {
	if err := unix.Access(dir, unix.W_OK); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}
