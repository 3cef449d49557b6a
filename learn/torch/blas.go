package torch

// #include "bind.h"
import "C"

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// coreType is the environment variable that selects the kernels of OpenBLAS when it is opened.
const coreType = "OPENBLAS_CORETYPE"

// fallbackKernels are the kernels that OpenBLAS uses for an unknown x86-64 processor: vectors of
// four numbers, no fused multiplication and addition.
const fallbackKernels = "Prescott"

// vectors describes the vector instructions of processor and system.
type vectors struct {
	avx2   bool // and FMA
	avx512 bool // F, BW, CD, DQ and VL: as in the first Xeon with AVX-512
}

func ownVectors() vectors {
	x86 := &cpu.X86
	return vectors{
		avx2: x86.HasAVX2 && x86.HasFMA,
		avx512: x86.HasFMA && x86.HasAVX512F && x86.HasAVX512BW && x86.HasAVX512CD &&
			x86.HasAVX512DQ && x86.HasAVX512VL,
	}
}

// betterKernels returns the kernels to use instead of those that OpenBLAS has chosen, or an empty
// string if its choice is right. It is right for every processor that OpenBLAS knows. No processor
// with AVX2 is a Prescott, but version 0.3.21, in Debian 12, uses the Prescott kernels for Intel's
// later models without checking their instructions.
func betterKernels(chosen string, has vectors) string {
	switch {
	case !strings.EqualFold(chosen, fallbackKernels):
		return ""
	case has.avx512:
		return "SkylakeX"
	case has.avx2:
		return "Haswell"
	}
	return ""
}

// openBLASFolder returns the folder of Debian's OpenBLAS that shares libtorch's thread pool, or an
// empty string if it is not installed.
func openBLASFolder() string {
	found, err := filepath.Glob("/usr/lib/*/openblas-openmp")
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// preloadBLAS opens the OpenBLAS of a folder, so that the linker uses it for libtorch instead of
// Debian's default alternative. That one has a second thread pool, and the two spin against each
// other (2.5 times slower with two threads).
//
// The choice of kernels is known only after opening, and OpenBLAS chooses only once. To change the
// choice, preloadBLAS closes it and opens it again.
func preloadBLAS(folder string, has vectors, info *Info) {
	library, ok := info.preload(folder, "libopenblas.so.0")
	if !ok {
		return
	}
	if kernels := betterKernels(openBLASKernels(library), has); kernels != "" && info.chooseKernels(kernels) {
		C.pt_unload(library)
		if _, ok := info.preload(folder, "libopenblas.so.0"); !ok {
			return
		}
	}
	for _, name := range []string{"libblas.so.3", "liblapack.so.3"} {
		if _, ok := info.preload(folder, name); !ok {
			return
		}
	}
}

func (info *Info) preload(folder, name string) (library unsafe.Pointer, ok bool) {
	path := C.CString(filepath.Join(folder, name))
	defer C.free(unsafe.Pointer(path))
	if message := C.pt_preload(path, &library); message != nil {
		info.Warnings = append(info.Warnings, "OpenBLAS (openmp) is installed but does not open: "+text(message))
		return nil, false
	}
	return library, true
}

// chooseKernels sets the kernels for the next OpenBLAS that is opened, unless the user has set
// them.
func (info *Info) chooseKernels(kernels string) bool {
	i := slices.IndexFunc(info.Settings, func(s Setting) bool { return s.Name == coreType })
	if i < 0 || info.Settings[i].Source == fromEnvironment {
		return false
	}
	if err := os.Setenv(coreType, kernels); err != nil {
		info.Warnings = append(info.Warnings, "cannot set "+coreType+": "+err.Error())
		return false
	}
	info.Settings[i] = Setting{Name: coreType, Value: kernels, Source: fromPsyche,
		Reason: "OpenBLAS does not know this CPU and takes kernels for " + fallbackKernels}
	return true
}

// checkKernels warns of an OpenBLAS with badly chosen kernels that could not be changed: it is not
// Debian's with libtorch's threads, or something else in the process had opened it.
func (info *Info) checkKernels(has vectors) {
	kernels := betterKernels(info.Kernels, has)
	if kernels == "" || slices.ContainsFunc(info.Settings, func(s Setting) bool {
		return s.Name == coreType && s.Source == fromEnvironment
	}) {
		return
	}
	info.Warnings = append(info.Warnings, "OpenBLAS does not know this CPU and computes with kernels for "+info.Kernels+
		", several times slower; set "+coreType+"="+kernels+", or install libopenblas0-openmp, which does not need that")
}

// openBLASKernels returns the name of the kernels of a library or, for nil, of libtorch's BLAS.
func openBLASKernels(library unsafe.Pointer) string {
	return C.GoString(C.pt_openblas_kernels(library))
}
