package sysmemory

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Peak returns the peak memory use of the process in bytes.
func Peak() uint64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return uint64(used.Maxrss) << 10
}

// Available returns the memory in bytes that is available to processes: of the machine, or of
// the container or control group if that has less. 0 means unknown.
func Available() uint64 { return availableIn("/") }

// Allocatable returns the maximum number of bytes that this process can allocate: the available
// memory and the free swap space, but at most the rest of a ulimit. 0 means unknown.
func Allocatable() uint64 {
	bytes := Available()
	if bytes == 0 {
		return 0
	}
	memory, _ := os.ReadFile("/proc/meminfo")
	bytes += field(memory, "SwapFree:") << 10
	used, _ := os.ReadFile("/proc/self/status")
	for limit, name := range map[int]string{syscall.RLIMIT_AS: "VmSize:", syscall.RLIMIT_DATA: "VmData:"} {
		var maximum syscall.Rlimit
		if err := syscall.Getrlimit(limit, &maximum); err != nil || maximum.Cur > 1<<62 {
			continue
		}
		bytes = min(bytes, maximum.Cur-min(maximum.Cur, field(used, name)<<10))
	}
	return bytes
}

// availableIn is like Available, for a system whose files are in the folder root.
func availableIn(root string) uint64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	available := field(text, "MemAvailable:") << 10
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(parts) < 3 {
			continue
		}
		kind := groupsV2
		if slices.Contains(strings.Split(parts[1], ","), "memory") {
			kind = groupsV1
		}
		// The limits of all parent groups apply too. In a container, the path may be the one outside
		// the container, while the files show the container's own group as the root. Paths without
		// files are skipped.
		for path := filepath.Join("/", parts[2]); ; path = filepath.Dir(path) {
			if free, limited := kind.free(filepath.Join(root, kind.top, path)); limited {
				available = min(available, free)
			}
			if path == "/" {
				break
			}
		}
	}
	return available
}

// groupFiles are the file names of a version of control groups.
type groupFiles struct{ top, limit, used, inactive, active string }

var (
	groupsV1 = groupFiles{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"}
	groupsV2 = groupFiles{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"}
)

// free returns the free bytes of a group, if it has a limit.
func (g groupFiles) free(dir string) (bytes uint64, limited bool) {
	limit := numberIn(filepath.Join(dir, g.limit))
	if limit == 0 {
		return 0, false
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	// The group counts cached pages of files as used, but reclaims them when a process needs memory.
	// The active pages belong to files that were read more than once.
	used := numberIn(filepath.Join(dir, g.used))
	used -= min(used, field(stat, g.inactive)+field(stat, g.active))
	return limit - min(limit, used), true
}

// field returns the number that follows name at the start of a line, or 0 if no line has one.
func field(text []byte, name string) uint64 {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == name {
			n, _ := strconv.ParseUint(fields[1], 10, 50) // 0 if it is not a number
			return n
		}
	}
	return 0
}

// numberIn returns the number in a file; 0 if there is none.
func numberIn(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63) // "max" is not a number
	return n
}
