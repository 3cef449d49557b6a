// Package disktest simulates full disks, for tests only.
package disktest

import (
	"os/signal"
	"syscall"
	"testing"
)

// Full calls act while this process cannot make any file larger than size bytes. A write beyond it is cut off, and
// fails with syscall.EFBIG. Tests that use it must not run in parallel.
func Full(t *testing.T, size int64, act func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := limit
	full.Cur = uint64(size)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Error(err)
		}
	}()
	act()
}
