package filelock

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// readings is how often processOf reads the list of locks until it finds the lock.
const readings = 5

// processOf returns the id of the process that has locked an open file. It returns 0 if the process
// is unknown, for example in a different container or on a different machine.
func processOf(file *os.File) int {
	var stat unix.Stat_t
	raw, err := file.SyscallConn()
	if err != nil {
		return 0
	}
	failed := raw.Control(func(descriptor uintptr) { err = unix.Fstat(int(descriptor), &stat) })
	if failed != nil || err != nil {
		return 0
	}
	place := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	// The kernel returns the file page by page. A page skips locks if other processes released locks of
	// earlier pages meanwhile, so one reading can miss a lock.
	for range readings {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil {
			return 0
		}
		if pid := holderIn(string(locks), place); pid != 0 {
			return pid
		}
	}
	return 0
}

// holderIn finds the process in the text of /proc/locks. place is MAJOR:MINOR:INODE of the file.
func holderIn(locks, place string) int {
	for line := range strings.Lines(locks) {
		// 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF; an arrow before the kind marks a process
		// that waits
		if f := strings.Fields(line); len(f) >= 6 && f[1] == "FLOCK" && f[5] == place {
			if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
				return pid
			}
		}
	}
	return 0
}
