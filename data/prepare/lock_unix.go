//go:build unix

package prepare

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes the lock of a folder, which ends when the folder is closed.
func lock(folder *os.File) error {
	return unix.Flock(int(folder.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
