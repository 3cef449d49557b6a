// Package strict provides a device for tests whose memory only kernels and copies can access.
//
// Code of the host that reads or writes a tensor's memory faults, as it would on a GPU. The device
// computes on the CPU. It counts the kernels that a GPU would launch, waits, and copied bytes. It has
// two ordinals, torch.Device(0) and torch.Device(1), and limits their memory on request. Our kernels and
// asynchronous copies run late: a missing wait gives wrong numbers. A test starts with
//
//	if !strict.Start(t) {
//		return
//	}
//
// The device is a C++ library in the folder device. [Start] compiles it against the libtorch of the
// shim, with the compiler and flags of the shim, unless it is already in build/lib.
package strict

/*
#cgo linux LDFLAGS: -ldl
#include "bind.h"
*/
import "C"

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/torch"
	layers "github.com/psyche-go/psyche/learn/torch/cuda"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// Devices is the number of ordinals.
const Devices = C.PSYCHE_STRICT_DEVICES

// folder contains the sources of the device's library, relative to the module.
const folder = "learn/torch/torchtest/strict/device"

// variable is the environment variable with the library, in processes that Start started.
const variable = "PSYCHE_STRICT_DEVICE"

// Start runs the calling test in another process, where libtorch has the strict device in place of
// CUDA. There it returns true. In the first process it returns false after the other process has
// ended, with the test's result, and the test must return. It skips the test, with the reason, if the
// device cannot be compiled on this machine.
func Start(t *testing.T) bool {
	t.Helper()
	if library := os.Getenv(variable); library != "" {
		if err := torch.Load(torch.Options{Threads: 1, Devices: library}); err != nil {
			t.Fatal(err)
		}
		if info, err := torch.Loaded(); err != nil || info.CUDA != Devices {
			t.Fatalf("libtorch finds %d devices, want %d (%v); call Start before anything loads libtorch", info.CUDA, Devices, err)
		}
		return true
	}
	output, err := Command(t, t.Name()).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	} else {
		t.Logf("%s", output)
	}
	return false
}

// Command returns a command that runs the top-level test with the given name in a process with the
// device. Tests use it instead of Start if they expect the process to fail.
func Command(t *testing.T, test string) *exec.Cmd {
	t.Helper()
	torchtest.Load(t)
	library := build(t)
	arguments := []string{"-test.v", "-test.run=^" + regexp.QuoteMeta(test) + "$"}
	if testing.Short() {
		arguments = append(arguments, "-test.short")
	}
	command := exec.CommandContext(t.Context(), os.Args[0], arguments...)
	command.Env = append(os.Environ(), variable+"="+library)
	return command
}

// Inside reports whether this process has the device.
func Inside() bool { return os.Getenv(variable) != "" }

// build returns the library's file. It compiles the library if it is missing or outdated.
func build(t *testing.T) string {
	t.Helper()
	root := moduleRoot(t)
	info, err := torch.Loaded()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob(filepath.Join(root, folder, "*"))
	if err != nil || len(sources) == 0 {
		t.Skipf("no sources of the strict device in %s", filepath.Join(root, folder))
	}
	for _, source := range sources { // go test runs a test again if a file that it looked at has changed
		if _, err := os.Stat(source); err != nil {
			t.Fatal(err)
		}
	}
	script := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "build-shim.sh"))
	library := filepath.Join(root, "build", "lib", "libpsyche_strict-"+info.Version+".so")
	script.Env = append(os.Environ(), "SHIM="+library, "SHIM_FOLDER="+folder)
	// A libtorch that is not the system's has its headers in a folder next to the libraries.
	prefix := filepath.Dir(filepath.Dir(info.Torch))
	if _, err := os.Stat(filepath.Join(prefix, "include", "ATen", "ATen.h")); err == nil {
		script.Env = append(script.Env, "LIBTORCH="+prefix)
	}
	output, err := script.CombinedOutput()
	switch {
	case err == nil:
	case strings.Contains(string(output), "does not compile"):
		t.Fatalf("%v\n%s", err, output)
	default:
		t.Skipf("the strict device cannot be compiled: %v: %s", err, output)
	}
	return library
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return root
		}
		parent := filepath.Dir(root)
		if parent == root {
			t.Skip("no sources of the strict device: no go.mod above the working directory")
		}
		root = parent
	}
}

// Counts are numbers since the last [Reset].
type Counts struct {
	Launches   int64 // of kernels; an attention's backward pass counts as four
	Waits      int64 // reads of single numbers, and synchronizations
	UpCopies   int64
	UpBytes    int64 // from the host to a device
	DownCopies int64 // each copy also waits
	DownBytes  int64
	Used, Peak [Devices]int64 // bytes of memory
}

// Read returns the counts.
func Read() Counts {
	var c C.psyche_strict_counts
	C.call_psyche_strict_read(&c)
	counts := Counts{
		Launches: int64(c.launches), Waits: int64(c.waits),
		UpCopies: int64(c.up_copies), UpBytes: int64(c.up_bytes),
		DownCopies: int64(c.down_copies), DownBytes: int64(c.down_bytes),
	}
	for d := range Devices {
		counts.Used[d], counts.Peak[d] = int64(c.used[d]), int64(c.peak[d])
	}
	return counts
}

// Reset sets the counts to zero, and the peaks to the memory in use.
func Reset() { C.call_psyche_strict_reset() }

// Operations returns the number of launches of each operation.
func Operations() map[string]int64 {
	text := C.call_psyche_strict_operations()
	defer C.free(unsafe.Pointer(text))
	launches := make(map[string]int64)
	for line := range strings.Lines(C.GoString(text)) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		launches[name], _ = strconv.ParseInt(number, 10, 64)
	}
	return launches
}

// Limit limits the memory of a device; 0 means unlimited.
func Limit(device torch.Device, bytes int64) {
	C.call_psyche_strict_limit(C.int(device), C.int64_t(bytes))
}

// UseKernels makes the shim use the kernels of package learn/torch/cuda on both ordinals until the test
// ends, through the launcher for GPUs and an emulated driver that runs their text on the CPU.
func UseKernels(t testing.TB) {
	t.Helper()
	UseKernelsOf(t, cudatest.Library(t))
}

// UseKernelsOf is UseKernels with a library that package cudatest built.
func UseKernelsOf(t testing.TB, library string) {
	t.Helper()
	for ordinal := range Devices {
		device, err := cuda.OpenWith(library, library, ordinal)
		if err != nil {
			t.Fatal(err)
		}
		launchOn(t, device, torch.Device(ordinal))
	}
}

// UseKernelsOfGPU is UseKernels for the first GPU. It skips the test without a GPU.
func UseKernelsOfGPU(t testing.TB) {
	t.Helper()
	torchtest.Load(t)
	if info, err := torch.Loaded(); err != nil || info.CUDA == 0 || Inside() {
		t.Skipf("no GPU (%v)", err)
	}
	device, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	launchOn(t, device, 0)
}

// launchOn makes the shim use the kernels on an ordinal until the test ends, and then closes device.
func launchOn(t testing.TB, device *cuda.Device, ordinal torch.Device) {
	t.Helper()
	program, err := device.Compile(layers.Source, layers.Names(), layers.Threads)
	if err != nil {
		t.Fatal(err, device.Close())
	}
	function, context := program.Launcher()
	torch.SetKernels(ordinal, function, context)
	t.Cleanup(func() {
		torch.SetKernels(ordinal, nil, nil)
		if err := errors.Join(program.Close(), device.Close()); err != nil {
			t.Error(err)
		}
	})
}

// Open makes all memory of the devices accessible until close is called.
func Open() (close func()) {
	for device := range Devices {
		C.call_psyche_strict_open(C.int(device))
	}
	return func() {
		for device := range Devices {
			C.call_psyche_strict_close(C.int(device))
		}
	}
}

// CopyDown starts an asynchronous copy of a tensor in f32 to memory of the host. The memory has NaNs until
// the program waits for the device.
func CopyDown(to []float32, from *torch.Tensor) {
	C.call_psyche_strict_copy_later(unsafe.Pointer(unsafe.SliceData(to)), pointer(from), C.size_t(4*len(to)))
}

// CopyUp is CopyDown in the other direction. A change of from before the program waits ends the process.
func CopyUp(to *torch.Tensor, from []float32) {
	C.call_psyche_strict_copy_later(pointer(to), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(4*len(from)))
}

// pointer returns the address of a tensor's first element.
func pointer(t *torch.Tensor) unsafe.Pointer {
	address := t.Address()
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}
