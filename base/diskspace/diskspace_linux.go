package diskspace

import (
	"math"
	"math/bits"
	"syscall"
)

// of returns the free space of a folder.
func of(dir string) Space {
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil {
		return Space{}
	}
	return spaceOf(fs)
}

// spaceOf returns the free space from the numbers of a file system. File systems without blocks, as in /proc, do not report
// it. Blocks have Frsize bytes: in FUSE, Bsize may be another size, that of a convenient read. File systems without a limit
// report numbers that overflow.
func spaceOf(fs syscall.Statfs_t) Space {
	size := uint64(max(fs.Frsize, 0))
	if size == 0 {
		size = uint64(max(fs.Bsize, 0))
	}
	if size == 0 || fs.Blocks == 0 {
		return Space{}
	}
	high, free := bits.Mul64(fs.Bavail, size)
	if high > 0 {
		free = math.MaxUint64
	}
	return Bytes(free)
}
