//go:build unix && !aix

package filelock

import (
	"cmp"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Supported reports whether locks exclude other processes on this system.
const Supported = true

// try locks an open file. It returns ErrHeld if another process has the lock.
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

// knowsNoLocks reports whether a lock failed because the file system does not support locks.
func knowsNoLocks(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.ENOLCK)
}
