package diskspace

import "syscall"

// of returns the free space of a folder. File systems without blocks, as in /proc, do not report it.
func of(dir string) Space {
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || fs.Bsize <= 0 || fs.Blocks == 0 {
		return Space{}
	}
	return Bytes(fs.Bavail * uint64(fs.Bsize))
}
