package torch

/*
#cgo linux LDFLAGS: -ldl
#include "bind.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// Options are the settings for loading libtorch. The zero value suits one trainer on a machine.
type Options struct {
	// Threads is the number of threads that compute one operation. 0 means OMP_NUM_THREADS if set,
	// else the number of CPUs that this process may use. Several trainers on one machine must share
	// its CPUs: two busy threads on one core are many times slower than one thread.
	Threads int
	// Library is the shim's file. If it is empty, Load uses PSYCHE_TORCH_SHIM if set. Else it searches
	// lib/, ../lib/ and ../lib/psyche/ relative to the executable, then build/lib of the Go module
	// around the working directory.
	Library string
	// OverrideOpenBLAS removes OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE from the environment, so that
	// OpenBLAS chooses kernels for this CPU. If it is false, Load keeps them, because the user may
	// have set them, and warns.
	OverrideOpenBLAS bool
	// Devices is the file of a library that registers devices with libtorch as its devices for private
	// use. They take the place of CUDA devices. If it is empty, Load uses PSYCHE_TORCH_DEVICES if set.
	// Tests use it; see package strict.
	Devices string
	// Logger receives the warnings; nil means no logging.
	Logger *slog.Logger
}

const shimName = "libpsyche_torch.so"

var loading struct {
	sync.Mutex
	done bool
	info Info
}

// Load loads libtorch. Later calls have no effect. The error is [ErrNoLibrary] or
// [ErrStaleLibrary], with the missing part and the remedy.
func Load(o Options) error {
	loading.Lock()
	defer loading.Unlock()
	if loading.done {
		return nil
	}
	path, err := findShim(o.Library)
	if err != nil {
		return err
	}
	if err := checkAddressSpace(path); err != nil {
		return err
	}
	info := Info{Library: path}
	info.Threads = prepareEnvironment(o, &info)
	if folder := openBLASFolder(path); folder != "" {
		preloadBLAS(folder, ownVectors(), &info)
	}

	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var stale C.int
	if message := C.pt_load(name, &stale); message != nil {
		return loadError(path, text(message), stale != 0)
	}
	if devices := cmp.Or(o.Devices, os.Getenv("PSYCHE_TORCH_DEVICES")); devices != "" {
		if err := openDevices(devices); err != nil {
			return err
		}
	}
	C.pt_tune_allocator()
	if message := C.pt_set_threads(C.int(info.Threads)); message != nil {
		return &Error{Op: "set_threads", Message: text(message)}
	}
	info.describe()
	loading.info, loading.done = info, true
	if o.Logger != nil {
		for _, w := range info.Warnings {
			o.Logger.Warn("libtorch", "warning", w)
		}
	}
	return nil
}

func openDevices(path string) error {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var library unsafe.Pointer // never closed: libtorch keeps addresses of its functions
	if message := C.pt_preload(name, &library); message != nil {
		return fmt.Errorf("torch: open devices: %s", text(message))
	}
	return nil
}

func loadError(path, message string, stale bool) error {
	if stale {
		return fmt.Errorf("torch: %w: %s: %s; rebuild it with: make shim", ErrStaleLibrary, path, message)
	}
	remedy := "rebuild it with: make shim"
	switch {
	case strings.Contains(message, "failed to map segment") || strings.Contains(message, "annot allocate memory"):
		remedy = "the address space or the memory is too small for it: run ulimit -v unlimited; if that does not help, rebuild it with: make shim"
		if limit := addressSpaceLimit(); limit > 0 {
			remedy = fmt.Sprintf("the address space is limited to %d KiB, which is too small for it; run: ulimit -v unlimited", limit>>10)
		}
	case strings.Contains(message, "GLIBC"):
		remedy = "the libtorch of this library needs a newer system; build with a libtorch for this system: make shim"
	case strings.Contains(message, "libtorch.so") || strings.Contains(message, "libtorch_") || strings.Contains(message, "libc10"):
		remedy = "install libtorch (Debian: apt-get install libtorch-dev), or set LIBTORCH to its folder, then: make shim"
	case strings.Contains(message, "cannot open shared object file"):
		remedy = "the libtorch of this library needs the missing library; install it, or build with another libtorch: make shim"
	}
	return fmt.Errorf("torch: %w: cannot open %s: %s; %s", ErrNoLibrary, path, message, remedy)
}

// findShim returns the path of the shim, or an error that lists the searched directories.
func findShim(given string) (string, error) {
	if given = cmp.Or(given, os.Getenv("PSYCHE_TORCH_SHIM")); given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("torch: %w: no shim at %s; build it with: make shim", ErrNoLibrary, given)
		}
		return given, nil
	}
	candidates := shimCandidates()
	for _, c := range candidates {
		if _, err := os.Stat(c); err == nil {
			return c, nil
		}
	}
	return "", fmt.Errorf("torch: %w: no %s in %s; build it with: make shim (or set PSYCHE_TORCH_SHIM to it)",
		ErrNoLibrary, shimName, strings.Join(directories(candidates), ", "))
}

func shimCandidates() []string {
	var list []string
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		list = append(list, filepath.Join(dir, "..", "lib", shimName), filepath.Join(dir, "..", "lib", "psyche", shimName), filepath.Join(dir, "lib", shimName))
	}
	dir, err := os.Getwd()
	for err == nil {
		if _, statErr := os.Stat(filepath.Join(dir, "go.mod")); statErr == nil {
			list = append(list, filepath.Join(dir, "build", "lib", shimName))
			break
		}
		if filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir)
	}
	return list
}

func directories(paths []string) []string {
	dirs := make([]string, len(paths))
	for i, p := range paths {
		dirs[i] = filepath.Dir(p)
	}
	return dirs
}

// Loaded returns the result of Load, for a report on the machine. Before Load it returns an error.
func Loaded() (Info, error) {
	loading.Lock()
	defer loading.Unlock()
	if !loading.done {
		return Info{}, errNotLoaded
	}
	return loading.info, nil
}

// Missing reports whether an error of Load means that libtorch or the shim is missing, not broken.
func Missing(err error) bool { return errors.Is(err, ErrNoLibrary) }

// defaultThreads returns the number of CPUs that this process may use. GOMAXPROCS follows the CPU
// limit of a control group.
func defaultThreads() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }
