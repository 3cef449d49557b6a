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

// coreType is the variable by whose value OpenBLAS takes kernels, when it is opened.
const coreType = "OPENBLAS_CORETYPE"

// fallbackKernels are those that OpenBLAS takes for a processor of x86-64 that it does not
// know: vectors of four numbers, no fused multiplication and addition.
const fallbackKernels = "Prescott"

// vectors says which vector instructions processor and system have.
type vectors struct {
	avx2   bool // and FMA
	avx512 bool // F, BW, CD, DQ and VL: what came with the first Xeon that had AVX-512
}

func ownVectors() vectors {
	x86 := &cpu.X86
	return vectors{
		avx2: x86.HasAVX2 && x86.HasFMA,
		avx512: x86.HasFMA && x86.HasAVX512F && x86.HasAVX512BW && x86.HasAVX512CD &&
			x86.HasAVX512DQ && x86.HasAVX512VL,
	}
}

// betterKernels names the kernels to take instead of those that OpenBLAS chose by itself;
// empty if its choice stands. It stands for every processor that OpenBLAS knows. No
// processor with AVX2 is a Prescott, but 0.3.21, of Debian 12, takes these for Intel's later
// models without looking at what they have.
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

// openBLASFolder is where Debian has the OpenBLAS that shares libtorch's thread pool; empty
// without it.
func openBLASFolder() string {
	found, err := filepath.Glob("/usr/lib/*/openblas-openmp")
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// preloadBLAS opens the OpenBLAS of a folder, so that the linker takes it for libtorch
// instead of Debian's default alternative. That one brings a second thread pool, and the
// two spin against each other (2.5 times slower with two threads).
//
// The kernels that OpenBLAS chooses are known only once it is open, and it chooses once. So where its
// choice is not to stand it is closed and opened again.
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

// chooseKernels has the next OpenBLAS that is opened take these, unless the user chose.
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

// checkKernels warns of an OpenBLAS whose choice is bad and was not mended: it is another
// than Debian's with libtorch's threads, or something else in the process had opened it.
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

// openBLASKernels names the kernels that a library uses, or, of nil, those of libtorch's BLAS.
func openBLASKernels(library unsafe.Pointer) string {
	return C.GoString(C.pt_openblas_kernels(library))
}
