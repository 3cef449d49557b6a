//go:build unix

package main

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// checkWritable returns an error if this process may not replace files in a folder.
func checkWritable(dir string) error {
	if err := unix.Access(dir, unix.W_OK); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return nil
}
