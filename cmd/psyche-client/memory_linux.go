package main

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// peakMemory returns the most bytes of the machine's memory that the process had so far.
func peakMemory() uint64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return uint64(used.Maxrss) << 10
}

// availableMemory returns how many bytes of memory processes can still take: of the machine, or of the container if that
// has fewer. 0: nobody says.
func availableMemory() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	available := parseAvailable(text)
	limit, used := numberIn("/sys/fs/cgroup/memory.max"), numberIn("/sys/fs/cgroup/memory.current")
	if limit > used && limit-used < available {
		return limit - used
	}
	return available
}

// parseAvailable reads /proc/meminfo.
func parseAvailable(text []byte) uint64 {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == "MemAvailable:" && fields[2] == "kB" {
			n, _ := strconv.ParseUint(fields[1], 10, 50) // 0 of what is no number
			return n << 10
		}
	}
	return 0
}

// numberIn returns the number in a file, 0 if there is none.
func numberIn(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63) // "max" is none
	return n
}

// freeDisk returns how many bytes of a folder's file system are free for this user; 0: nobody says.
func freeDisk(dir string) uint64 {
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil || fs.Bsize <= 0 {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
