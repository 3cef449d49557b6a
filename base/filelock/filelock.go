package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

// ErrHeld means that the lock is taken by another process, or by another open file of this process.
var ErrHeld = errors.New("another process has locked it")

// errGone means that a file was removed or renamed between its opening and its locking.
var errGone = errors.New("another process keeps removing it")

const (
	look     = 100 * time.Millisecond // interval between attempts to get a lock
	attempts = 10                     // maximum for Open, if other processes keep removing the file
)

// heldError is ErrHeld with the id of the process that holds the lock.
type heldError struct{ pid int }

func (e heldError) Error() string { return ErrHeld.Error() + By(e) }

func (heldError) Unwrap() error { return ErrHeld }

// holderOf returns the id of the process that holds the lock, from an error of this package. It
// returns 0 if the process is unknown.
func holderOf(err error) int {
	held, _ := errors.AsType[heldError](err)
	return held.pid
}

// By returns the process that holds the lock, from an error of this package, as text such as "
// (process 1234)". It returns "" if the process is unknown.
func By(err error) string {
	if pid := holderOf(err); pid != 0 {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return ""
}

// Try locks an open file or folder until it is closed. It returns ErrHeld if the lock is taken.
func Try(file *os.File) error {
	err := try(file)
	if errors.Is(err, ErrHeld) {
		if pid := processOf(file); pid != 0 {
			err = heldError{pid}
		}
	}
	if err != nil {
		return explain(file.Name(), err)
	}
	return nil
}

// explain adds the path to an error, and advice if the file system does not support locks.
func explain(path string, err error) error {
	if knowsNoLocks(err) {
		return fmt.Errorf("lock %s: %w; choose a folder on a file system with locks, such as a local disk", path, err)
	}
	return fmt.Errorf("lock %s: %w", path, err)
}

// IsAt reports whether an open file is still the file at the path.
func IsAt(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(opened, now)
}

// Open opens a file for reading and writing, creates it if necessary, and locks it. The folder of
// the file must exist.
func Open(path string, mode fs.FileMode) (*os.File, error) {
	return again(path, func() (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, mode) })
}

// OpenFolder creates a folder and its parents if necessary, and locks the folder.
func OpenFolder(path string, mode fs.FileMode) (*os.File, error) {
	return again(path, func() (*os.File, error) {
		if err := os.MkdirAll(path, mode); err != nil {
			return nil, err
		}
		return os.Open(path)
	})
}

// Wait is like Open, but waits for a taken lock until ctx ends.
func Wait(ctx context.Context, path string, mode fs.FileMode) (*os.File, error) {
	for {
		file, err := Open(path, mode)
		if err == nil || !errors.Is(err, ErrHeld) {
			return file, err
		}
		if ended := pause.For(ctx, look); ended != nil {
			return nil, fmt.Errorf("%w: %w", err, ended)
		}
	}
}

// again calls open and locks the file. It retries a few times if another process removes the file.
func again(path string, open func() (*os.File, error)) (*os.File, error) {
	for range attempts {
		file, err := open()
		if err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
		if err := Try(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if IsAt(file, path) {
			return file, nil
		}
		if err := file.Close(); err != nil {
			return nil, fmt.Errorf("lock: %w", err)
		}
	}
	return nil, explain(path, fmt.Errorf("%w: %w", ErrHeld, errGone))
}
