package journal

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// file contains the methods of *os.File that Journal uses.
type file interface {
	io.WriteSeeker
	io.ReaderAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

// undo reverts a write that failed for lack of space, so that it can be tried again.
func (j *Journal) undo(err error) error {
	if !noRoom(err) {
		j.failed = err
		return err
	}
	if undone := j.file.Truncate(j.size); undone != nil {
		j.failed = errors.Join(err, undone)
		return j.failed
	}
	if _, undone := j.file.Seek(j.size, io.SeekStart); undone != nil {
		j.failed = errors.Join(err, undone)
		return j.failed
	}
	return fmt.Errorf("%w: %w", ErrFull, err)
}

// noRoom reports whether a write failed for lack of space: a full disk, a quota, or the process's
// limit for the size of a file.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
