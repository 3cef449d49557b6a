package diskspace

import (
	"math"
	"syscall"
	"testing"
)

// TestSpaceOf checks the numbers of unusual file systems.
func TestSpaceOf(t *testing.T) {
	for _, test := range []struct {
		name string
		fs   syscall.Statfs_t
		want Space
	}{
		{"full", syscall.Statfs_t{Blocks: 10, Bsize: 4096, Frsize: 4096}, Bytes(0)},
		{"without blocks", syscall.Statfs_t{Bsize: 4096, Frsize: 4096}, Space{}},
		{"without sizes", syscall.Statfs_t{Blocks: 10, Bavail: 5}, Space{}},
		{"blocks larger than reads", syscall.Statfs_t{Blocks: 10, Bavail: 5, Bsize: 512, Frsize: 4096}, Bytes(5 * 4096)},
		{"reads larger than blocks", syscall.Statfs_t{Blocks: 10, Bavail: 5, Bsize: 1 << 20, Frsize: 4096}, Bytes(5 * 4096)},
		{"only the size of reads", syscall.Statfs_t{Blocks: 10, Bavail: 5, Bsize: 4096}, Bytes(5 * 4096)},
		{"without a limit", syscall.Statfs_t{Blocks: math.MaxUint64, Bavail: 1 << 52, Bsize: 4096, Frsize: 4096}, Bytes(math.MaxUint64)},
	} {
		if got := spaceOf(test.fs); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}
