package cuda

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnvNVRTC is the environment variable with the path of NVRTC, or of the directory that contains
// it.
const EnvNVRTC = "PSYCHE_NVRTC"

// libraries contains the file names to try, in order.
type libraries struct {
	driver []string
	nvrtc  func() []string
}

func systemLibraries() libraries {
	return libraries{driver: []string{"libcuda.so.1", "libcuda.so"}, nvrtc: nvrtcPaths}
}

// nvrtcPaths returns the paths to try for NVRTC. If the user named a path, it returns only that
// path.
func nvrtcPaths() []string {
	if named := os.Getenv(EnvNVRTC); named != "" {
		if info, err := os.Stat(named); err != nil || !info.IsDir() {
			return []string{named}
		}
		if found := nvrtcIn(named); len(found) > 0 {
			return found
		}
		return []string{filepath.Join(named, "libnvrtc.so")}
	}
	var paths []string
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		paths = nvrtcBeside(mappedLibraries(string(maps)))
	}
	paths = append(paths, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so")
	return append(paths, nvrtcIn("/usr/local/cuda/lib64")...)
}

// mappedLibraries returns each file in a table of memory mappings once.
func mappedLibraries(maps string) []string {
	var files []string
	for line := range strings.Lines(maps) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.Contains(line[at:], ".so") {
			files = append(files, strings.TrimSpace(line[at:]))
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// nvrtcBeside searches for NVRTC among the loaded libraries, and then in the packages next to a
// loaded libtorch.
func nvrtcBeside(loaded []string) []string {
	var paths, near []string
	for _, file := range loaded {
		directory, name := filepath.Split(file)
		if isNVRTC(name) {
			paths = append(paths, file)
		}
		if strings.HasPrefix(name, "libtorch") || strings.HasPrefix(name, "libc10") {
			near = append(near, directory,
				filepath.Join(directory, "../../nvidia/cuda_nvrtc/lib"), // CUDA 11 and 12
				filepath.Join(directory, "../../nvidia/cu13/lib"))
		}
	}
	slices.Sort(near)
	for _, directory := range slices.Compact(near) {
		paths = append(paths, nvrtcIn(directory)...)
	}
	return paths
}

func nvrtcIn(directory string) []string {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil
	}
	var paths []string
	for _, entry := range entries {
		if isNVRTC(entry.Name()) {
			paths = append(paths, filepath.Join(directory, entry.Name()))
		}
	}
	return paths
}

// isNVRTC accepts libnvrtc.so.12 and libnvrtc-b51b459d.so.12, but not libnvrtc-builtins.so.12.4 and
// libnvrtc.alt.so.13.
func isNVRTC(name string) bool {
	return strings.HasPrefix(name, "libnvrtc") && strings.Contains(name, ".so") &&
		!strings.HasPrefix(name, "libnvrtc-builtins") && !strings.Contains(name, "static") && !strings.Contains(name, ".alt.")
}
