//go:build cgo && linux

package cuda

/*
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// compile compiles text for a compute capability, with the first NVRTC library that can be
// opened. It returns the PTX including its final zero.
func compile(paths []string, compute int, text string) ([]byte, error) {
	table := (*C.psyche_cuda_nvrtc)(C.calloc(1, C.size_t(unsafe.Sizeof(C.psyche_cuda_nvrtc{}))))
	defer C.free(unsafe.Pointer(table))
	var reasons []string
	for _, path := range paths {
		reason := withPath(path, func(p *C.char) *C.char { return C.psyche_cuda_open_nvrtc(p, table) })
		if reason == "" {
			return (&compiler{table}).compile(compute, text)
		}
		reasons = append(reasons, reason)
	}
	return nil, fmt.Errorf("%w: no NVRTC to compile the kernels; set %s to its folder: %s", ErrNoCUDA, EnvNVRTC, strings.Join(reasons, "; "))
}

type compiler struct{ nvrtc *C.psyche_cuda_nvrtc }

func (c *compiler) failure(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s (%d)", call, C.GoString(C.psyche_cuda_nvrtc_error(c.nvrtc, code)), int(code))
}

func (c *compiler) compile(compute int, source string) ([]byte, error) {
	known, err := c.newest(compute)
	if err != nil {
		return nil, err
	}
	text, architecture := C.CString(source), C.CString(fmt.Sprintf("--gpu-architecture=compute_%d", known))
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(architecture))
	var program unsafe.Pointer
	if err := c.failure("nvrtcCreateProgram", C.psyche_cuda_create(c.nvrtc, &program, text)); err != nil {
		return nil, err
	}
	defer C.psyche_nvrtcDestroyProgram(c.nvrtc, &program)
	if err := c.failure("nvrtcCompileProgram", C.psyche_cuda_compile(c.nvrtc, program, architecture)); err != nil {
		return nil, fmt.Errorf("compile the kernels for compute capability %d: %w: %s", known, err, c.log(program))
	}
	var size C.size_t
	if err := c.failure("nvrtcGetPTXSize", C.psyche_nvrtcGetPTXSize(c.nvrtc, program, &size)); err != nil {
		return nil, err
	}
	ptx := make([]byte, size+1)
	return ptx, c.failure("nvrtcGetPTX", C.psyche_nvrtcGetPTX(c.nvrtc, program, (*C.char)(unsafe.Pointer(&ptx[0]))))
}

// newest returns the newest compute capability that NVRTC knows and the device supports.
func (c *compiler) newest(compute int) (int, error) {
	var count C.int
	if err := c.failure("nvrtcGetNumSupportedArchs", C.psyche_nvrtcGetNumSupportedArchs(c.nvrtc, &count)); err != nil {
		return 0, err
	}
	known := make([]C.int, max(count, 1))
	if err := c.failure("nvrtcGetSupportedArchs", C.psyche_nvrtcGetSupportedArchs(c.nvrtc, &known[0])); err != nil {
		return 0, err
	}
	best := 0
	for _, capability := range known {
		if int(capability) <= compute {
			best = max(best, int(capability))
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("%w: this NVRTC does not support compute capability %d or any lower one", ErrNoCUDA, compute)
	}
	return best, nil
}

func (c *compiler) log(program unsafe.Pointer) string {
	var size C.size_t
	if C.psyche_nvrtcGetProgramLogSize(c.nvrtc, program, &size) != 0 {
		return "no log"
	}
	log := make([]byte, size+1)
	if C.psyche_nvrtcGetProgramLog(c.nvrtc, program, (*C.char)(unsafe.Pointer(&log[0]))) != 0 {
		return "no log"
	}
	return strings.Trim(string(log), "\x00\n")
}
