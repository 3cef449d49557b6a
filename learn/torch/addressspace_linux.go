package torch

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// threadSpace is the address space in bytes that the threads of libtorch and of the Go runtime need
// for their stacks and the arenas of their allocator. With less, a thread sometimes does not start,
// and the process aborts or hangs.
const threadSpace = 512 << 20

// checkAddressSpace returns an error if a limit of the address space is too small to load a
// library. It counts the libraries that this library needs only if they are in the usual folders.
func checkAddressSpace(library string) error {
	limit := addressSpaceLimit()
	if limit == 0 {
		return nil
	}
	return enoughSpace(limit, usedSpace(), loadedSize(library))
}

// addressSpaceLimit returns the limit of the address space in bytes, or 0 if there is none.
func addressSpaceLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_AS, &limit) != nil || limit.Cur > 1<<62 {
		return 0
	}
	return limit.Cur
}

// enoughSpace compares a limit with the bytes in use, the bytes of libraries, and threadSpace.
func enoughSpace(limit, used, libraries uint64) error {
	if need := used + libraries + threadSpace; limit < need {
		return fmt.Errorf("torch: %w: the address space is limited to %d KiB, and libtorch and its threads need about %d KiB; run: ulimit -v unlimited",
			ErrNoLibrary, limit>>10, need>>10)
	}
	return nil
}

// usedSpace returns the bytes of this process's address space.
func usedSpace() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if size, found := strings.CutPrefix(lines.Text(), "VmSize:"); found {
			kib, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 10, 50)
			return kib << 10
		}
	}
	return 0
}

// loadedSize returns the bytes that a library and the libraries that it needs are mapped to.
func loadedSize(library string) (total uint64) {
	seen, waiting := map[string]bool{filepath.Base(library): true}, []string{library}
	shared := append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), systemFolders()...)
	for len(waiting) > 0 {
		path := waiting[0]
		waiting = waiting[1:]
		file, err := elf.Open(path)
		if err != nil {
			continue
		}
		total += mappedSize(file)
		names, _ := file.ImportedLibraries()
		folders := append(ownFolders(file, filepath.Dir(path)), shared...)
		_ = file.Close() // it was only read
		for _, name := range names {
			if found := findIn(folders, name); found != "" && !seen[name] {
				waiting = append(waiting, found)
			}
			seen[name] = true
		}
	}
	return total
}

// mappedSize returns the bytes from the first to the last segment that is loaded.
func mappedSize(file *elf.File) uint64 {
	first, last := uint64(1<<63), uint64(0)
	for _, part := range file.Progs {
		if part.Type == elf.PT_LOAD {
			first, last = min(first, part.Vaddr), max(last, part.Vaddr+part.Memsz)
		}
	}
	return last - min(first, last)
}

// ownFolders returns the folders that a library in a folder names itself.
func ownFolders(file *elf.File, dir string) (folders []string) {
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		paths, _ := file.DynString(tag)
		for _, path := range paths {
			path = strings.NewReplacer("${ORIGIN}", dir, "$ORIGIN", dir).Replace(path)
			folders = append(folders, filepath.SplitList(path)...)
		}
	}
	return folders
}

// systemFolders returns the usual folders of libraries and the folders in /etc/ld.so.conf.d.
func systemFolders() []string {
	folders := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"}
	configs, _ := filepath.Glob("/etc/ld.so.conf.d/*.conf")
	for _, config := range append(configs, "/etc/ld.so.conf") {
		text, _ := os.ReadFile(config)
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "/") {
				folders = append(folders, line)
			}
		}
	}
	return folders
}

func findIn(folders []string, name string) string {
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
