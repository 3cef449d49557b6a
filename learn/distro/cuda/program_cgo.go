//go:build cgo && linux

package cuda

/*
#include <stdlib.h>
#include "program.h"
*/
import "C"

import (
	"errors"
	"slices"
	"unsafe"
)

// program is compiled text of a machine, in C's memory.
type program struct {
	machine *machine
	c       *C.psyche_cuda_program
}

// compileProgram compiles text with the given kernels. The caller has made the context current.
func (m *machine) compileProgram(paths []string, text string, kernels []string, threads int) (*program, error) {
	ptx, err := compile(paths, m.compute, text)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(slices.Values(kernels))
	p := &program{m, (*C.psyche_cuda_program)(C.calloc(1, C.size_t(unsafe.Sizeof(C.psyche_cuda_program{}))))}
	p.c.driver, p.c.context, p.c.threads = m.driver, m.context, C.uint(threads)
	if p.c.module, err = m.loadModule(ptx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	pointers := C.size_t(len(names)) * C.size_t(unsafe.Sizeof(uintptr(0)))
	p.c.names, p.c.functions = (**C.char)(C.calloc(1, pointers)), (*unsafe.Pointer)(C.calloc(1, pointers))
	for i, name := range names {
		if unsafe.Slice(p.c.functions, len(names))[i], err = m.function(p.c.module, name); err != nil {
			return nil, errors.Join(err, p.close())
		}
		unsafe.Slice(p.c.names, len(names))[i] = C.CString(name)
		p.c.count++
	}
	return p, nil
}

func (p *program) launcher() (function, context unsafe.Pointer) {
	return C.psyche_cuda_program_launch, unsafe.Pointer(p.c)
}

// close unloads the module. The caller has made the context current.
func (p *program) close() error {
	var err error
	if p.c.module != nil {
		err = p.machine.failure("cuModuleUnload", C.psyche_cuModuleUnload(p.machine.driver, p.c.module))
	}
	for _, name := range unsafe.Slice(p.c.names, p.c.count) {
		C.free(unsafe.Pointer(name))
	}
	C.free(unsafe.Pointer(p.c.names))
	C.free(unsafe.Pointer(p.c.functions))
	C.free(unsafe.Pointer(p.c))
	return err
}
