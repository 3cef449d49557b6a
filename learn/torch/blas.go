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

// coreType is the environment variable that selects OpenBLAS's kernels when OpenBLAS is opened.
const coreType = "OPENBLAS_CORETYPE"

// openBLAS is the name of OpenBLAS's library.
const openBLAS = "libopenblas.so.0"

// fallbackKernels are the kernels that OpenBLAS selects on an x86-64 processor that it does not
// know: vectors of four numbers, without fused multiply-add.
const fallbackKernels = "Prescott"

// vectors contains the vector instructions that the processor and the system support.
type vectors struct {
	avx2   bool // and FMA
	avx512 bool // F, BW, CD, DQ and VL: the extensions of the first Xeon with AVX-512
}

func ownVectors() vectors {
	x86 := &cpu.X86
	return vectors{
		avx2: x86.HasAVX2 && x86.HasFMA,
		avx512: x86.HasFMA && x86.HasAVX512F && x86.HasAVX512BW && x86.HasAVX512CD &&
			x86.HasAVX512DQ && x86.HasAVX512VL,
	}
}

// betterKernels returns the kernels to use instead of the ones that OpenBLAS chose, or "" to keep
// its choice. It keeps the choice for every processor that OpenBLAS knows. No processor with AVX2
// is a Prescott. But OpenBLAS 0.3.21, of Debian 12, chooses Prescott for Intel's later models
// without checking their features.
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

// openBLASFolder returns the folder of the OpenBLAS to open first, or "" for none. A shim that was
// installed with its libraries uses their OpenBLAS. Other shims use Debian's OpenBLAS that shares
// libtorch's thread pool.
func openBLASFolder(shim string) string {
	folder := filepath.Join(filepath.Dir(shim), "libtorch")
	if _, err := os.Stat(folder); err == nil {
		if _, err := os.Stat(filepath.Join(folder, openBLAS)); err != nil {
			return ""
		}
		return folder
	}
	found, err := filepath.Glob("/usr/lib/*/openblas-openmp")
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// preloadBLAS opens the OpenBLAS of a folder. The linker then uses it for libtorch instead of
// Debian's default alternative. The default has a second thread pool, and the two pools spin
// against each other (2.5 times slower with two threads).
//
// OpenBLAS chooses its kernels once, when it is opened, and only then reports them. To override the
// choice, preloadBLAS closes OpenBLAS and opens it again.
func preloadBLAS(folder string, has vectors, info *Info) {
	library, ok := info.preload(folder, openBLAS)
	if !ok {
		return
	}
	if kernels := betterKernels(openBLASKernels(library), has); kernels != "" && info.chooseKernels(kernels) {
		C.pt_unload(library)
		if _, ok := info.preload(folder, openBLAS); !ok {
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
		info.Warnings = append(info.Warnings, "OpenBLAS (openmp) is installed but cannot be loaded: "+text(message))
		return nil, false
	}
	return library, true
}

// chooseKernels selects the kernels of the next OpenBLAS to be opened, unless the user selected
// some.
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
		Reason: "OpenBLAS does not recognise this CPU and uses kernels for " + fallbackKernels}
	return true
}

// checkKernels warns if OpenBLAS still uses bad kernels. This happens if it is not Debian's
// OpenBLAS with libtorch's threads, or if other code in the process opened it before.
func (info *Info) checkKernels(has vectors) {
	kernels := betterKernels(info.Kernels, has)
	if kernels == "" || slices.ContainsFunc(info.Settings, func(s Setting) bool {
		return s.Name == coreType && s.Source == fromEnvironment
	}) {
		return
	}
	info.Warnings = append(info.Warnings, "OpenBLAS does not recognise this CPU and uses kernels for "+info.Kernels+
		", several times slower; set "+coreType+"="+kernels+", or install libopenblas0-openmp, which does not need this setting")
}

// openBLASKernels returns the name of the kernels that a library uses. A nil library is libtorch's
// BLAS.
func openBLASKernels(library unsafe.Pointer) string {
	return C.GoString(C.pt_openblas_kernels(library))
}
