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
	available := field(text, "MemAvailable:") << 10
	if limit := numberIn("/sys/fs/cgroup/memory.max"); limit > 0 {
		stat, _ := os.ReadFile("/sys/fs/cgroup/memory.stat")
		// Pages of files that nobody uses count as the container's until somebody wants their room.
		used := numberIn("/sys/fs/cgroup/memory.current")
		used -= min(used, field(stat, "inactive_file"))
		available = min(available, limit-min(limit, used))
	}
	return available
}

// field returns the number behind a name that begins a line, 0 if there is none.
func field(text []byte, name string) uint64 {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == name {
			n, _ := strconv.ParseUint(fields[1], 10, 50) // 0 of what is no number
			return n
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
