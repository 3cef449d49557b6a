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

// spaceOf computes the free space from the numbers that statfs reports. Some file systems, such as
// /proc, have no blocks; their free space is unknown. A block has Frsize bytes. Bsize is not the block
// size in FUSE: it is the preferred size of a read. File systems without a limit report numbers that
// overflow.
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
