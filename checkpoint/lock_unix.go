//go:build unix

package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a folder until it is closed, and reports whether nobody else has it. Where the
// file system knows no locks, nobody has it, and it is never found abandoned.
func lock(folder *os.File) bool {
	return !errors.Is(syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// abandoned reports whether the process that made a folder has ended, and takes it.
func abandoned(folder *os.File) bool {
	return syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
