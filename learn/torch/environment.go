package torch

/*
#include "bind.h"
*/
import "C"

import (
	"os"
	"strconv"
	"strings"
)

// Setting is an environment variable that libtorch or its BLAS reads when it starts.
type Setting struct {
	Name, Value string
	// Source is "psyche" (set by Load), "environment" (already set), "dropped" (already set, but
	// removed) or "unset".
	Source string
	Reason string // reason why Load set it, if it does not always do so
}

const (
	fromPsyche      = "psyche"
	fromEnvironment = "environment"
	wasDropped      = "dropped"
	notSet          = "unset"
)

// Info describes libtorch for a report on the machine.
type Info struct {
	Library    string // file of the shim
	Version    string // of libtorch
	Torch      string // file of libtorch
	BLAS       string // file of the BLAS in use; empty if it is part of libtorch
	Kernels    string // name of the processor of OpenBLAS's kernels, such as "Haswell"; empty for another BLAS
	Capability string // vector instructions that libtorch uses, such as "AVX512"
	Threads    int
	CUDA       int  // number of CUDA devices that libtorch finds
	ForCUDA    bool // libtorch was built for CUDA
	Generic    bool // PSYCHE_TORCH_GENERIC=1: the shim's own loops over memory are not used
	Settings   []Setting
	Warnings   []string
	Parallel   string // libtorch's own report on its thread pools, several lines
}

// genericName is the environment variable with which tests run the code for other devices on the
// CPU. The shim reads it and mentions it in its report on threads.
const genericName = "PSYCHE_TORCH_GENERIC"

// spinCount limits how long an idle thread of libgomp busy-waits for work. The default is
// unlimited, which is up to seven times slower if other work needs the core.
const spinCount = "10000"

// prepareEnvironment sets the variables that the libraries read when they are opened. It keeps
// values that the user has set. It returns the number of threads.
func prepareEnvironment(o Options, info *Info) int {
	threads := o.Threads
	if threads <= 0 {
		threads = defaultThreads()
		if n, err := strconv.Atoi(os.Getenv("OMP_NUM_THREADS")); err == nil && n > 0 {
			threads = n
		}
	}
	info.setDefault("OMP_NUM_THREADS", strconv.Itoa(threads))
	info.setDefault("GOMP_SPINCOUNT", spinCount)
	capability := ""
	if ownVectors().avx512 {
		capability = "avx512" // libtorch 1.13 uses at most AVX2 by default
	}
	info.setDefault("ATEN_CPU_CAPABILITY", capability)
	for _, name := range []string{coreType, "OPENBLAS_L2_SIZE"} {
		info.findOpenBLAS(name, o.OverrideOpenBLAS)
	}
	return threads
}

func (info *Info) setDefault(name, value string) {
	if found := os.Getenv(name); found != "" {
		info.Settings = append(info.Settings, Setting{Name: name, Value: found, Source: fromEnvironment})
		return
	}
	if value == "" {
		info.Settings = append(info.Settings, Setting{Name: name, Source: notSet})
		return
	}
	// With cgo, os.Setenv also changes the C library's environment.
	if err := os.Setenv(name, value); err != nil {
		info.Warnings = append(info.Warnings, "cannot set "+name+": "+err.Error())
		return
	}
	info.Settings = append(info.Settings, Setting{Name: name, Value: value, Source: fromPsyche})
}

func (info *Info) findOpenBLAS(name string, override bool) {
	found := os.Getenv(name)
	switch {
	case found == "":
		_ = os.Unsetenv(name) // OpenBLAS treats an empty value like an unknown name
		info.Settings = append(info.Settings, Setting{Name: name, Source: notSet})
	case override && os.Unsetenv(name) == nil:
		info.Settings = append(info.Settings, Setting{Name: name, Value: found, Source: wasDropped})
		info.Warnings = append(info.Warnings, name+"="+found+" in the environment was ignored")
	default:
		info.Settings = append(info.Settings, Setting{Name: name, Value: found, Source: fromEnvironment})
	}
}

// describe fills in the facts that are known only after libtorch is open.
func (info *Info) describe() {
	info.Version = text(C.pt_library_version())
	info.Torch = loadedFile("libtorch_cpu")
	info.Parallel = text(C.pt_parallel_info())
	info.CUDA = int(C.pt_cuda_devices())
	info.ForCUDA = loadedFile("libtorch_cuda", "libtorch_hip") != ""
	if info.Generic = strings.Contains(info.Parallel, genericName); info.Generic {
		info.Warnings = append(info.Warnings, genericName+" is set, for tests only: the CPU runs the slower code for other devices; unset it")
	}
	info.BLAS = loadedFile("libopenblas", "libblas", "libmkl", "libblis")
	for line := range strings.Lines(text(C.pt_build_config())) {
		if _, value, ok := strings.Cut(line, "CPU capability usage:"); ok {
			info.Capability = strings.TrimSpace(value)
		}
	}
	info.Kernels = openBLASKernels(nil)
	info.checkSettings()
	info.checkKernels(ownVectors())
	if strings.Contains(info.BLAS, "openblas-pthread") && info.Threads > 1 {
		info.Warnings = append(info.Warnings,
			"this OpenBLAS has a thread pool separate from libtorch's; install libopenblas0-openmp or use one thread")
	}
}

// checkSettings warns of environment variables that slow libtorch down or have no effect.
func (info *Info) checkSettings() {
	for _, s := range info.Settings {
		if s.Source != fromEnvironment {
			continue
		}
		set := s.Name + "=" + s.Value
		switch {
		case s.Name == coreType && info.Kernels != "" && !strings.EqualFold(s.Value, info.Kernels):
			info.Warnings = append(info.Warnings, set+" does not name kernels that OpenBLAS has for this CPU; OpenBLAS uses kernels for "+info.Kernels)
		case strings.HasPrefix(s.Name, "OPENBLAS_"):
			info.Warnings = append(info.Warnings, set+" is set in the environment and may halve the speed; unset it to use the value that suits this CPU")
		case s.Name == "ATEN_CPU_CAPABILITY" && ownVectors().avx512 && info.Capability != "AVX512":
			info.Warnings = append(info.Warnings, set+" is set in the environment and keeps libtorch from using AVX-512; unset it")
		}
	}
}

// loadedFile returns the path of the first mapped library whose file name starts with one of the
// names.
func loadedFile(names ...string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	for _, name := range names {
		for line := range strings.Lines(string(maps)) {
			path := strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:])
			if strings.HasPrefix(path[strings.LastIndexByte(path, '/')+1:], name) {
				return path
			}
		}
	}
	return ""
}
