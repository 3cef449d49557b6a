package journal

import (
	"errors"
	"fmt"
	"io"
	"syscall"
)

// file is what Journal needs of an *os.File.
type file interface {
	io.WriteSeeker
	io.ReaderAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

// undo takes back a write that found no room, so that it can be done again.
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

// noRoom reports whether a write failed for a reason that goes away when somebody makes room: the
// disk, a quota, or the largest size of a file that the process may write.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
