//go:build unix && !aix

package filelock

import (
	"cmp"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Supported tells whether locks keep anybody out on this system.
const Supported = true

// try locks an open file, and returns ErrHeld when another process has it.
func try(file *os.File) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(descriptor uintptr) {
		for failed = unix.EINTR; errors.Is(failed, unix.EINTR); {
			failed = unix.Flock(int(descriptor), unix.LOCK_EX|unix.LOCK_NB)
		}
	})
	if errors.Is(failed, unix.EWOULDBLOCK) {
		failed = ErrHeld
	}
	return cmp.Or(err, failed)
}

// knowsNoLocks tells whether a lock failed because of the file system that the file is on.
func knowsNoLocks(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.ENOLCK)
}
