//go:build cgo && linux

package cuda

/*
#cgo CFLAGS: -std=gnu11 -Wall
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// machine is the driver with one opened device.
type machine struct {
	driver  *C.psyche_cuda_driver // allocated by C; contains tables of functions
	device  C.int
	context unsafe.Pointer
	module  unsafe.Pointer
	name    string
	compute int // capability, major·10 + minor
	blocks  int // maximum number of blocks in a launch
	kernels map[string]unsafe.Pointer
	traffic Traffic
}

const (
	attributeMultiprocessors = 16
	attributeComputeMajor    = 75
	attributeComputeMinor    = 76
	functionDynamicShared    = 8
	errorOutOfMemory         = 2
	errorUnsupportedPTX      = 222
)

// blocksPerMultiprocessor is enough to fill a multiprocessor. A block processes several chunks.
const blocksPerMultiprocessor = 32

// openMachine opens a device and compiles the kernels for it.
func openMachine(libraries libraries, ordinal int) (_ *machine, err error) {
	driver, err := openDriver(libraries.driver)
	if err != nil {
		return nil, err
	}
	m := &machine{driver: driver, kernels: map[string]unsafe.Pointer{}}
	if err := m.find(ordinal); err != nil {
		C.free(unsafe.Pointer(driver))
		return nil, fmt.Errorf("%w: %w", ErrNoCUDA, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	ptx, err := compile(libraries.nvrtc(), m.compute, source())
	if err != nil {
		return nil, err
	}
	return m, m.within(func() error { return m.load(ptx) })
}

// openDriver opens the first driver library that can be opened.
func openDriver(paths []string) (*C.psyche_cuda_driver, error) {
	table := (*C.psyche_cuda_driver)(C.calloc(1, C.size_t(unsafe.Sizeof(C.psyche_cuda_driver{}))))
	var reasons []string
	for _, path := range paths {
		reason := withPath(path, func(p *C.char) *C.char { return C.psyche_cuda_open_driver(p, table) })
		if reason == "" {
			return table, nil
		}
		reasons = append(reasons, reason)
	}
	C.free(unsafe.Pointer(table))
	return nil, fmt.Errorf("%w: no driver: %s", ErrNoCUDA, strings.Join(reasons, "; "))
}

func withPath(path string, open func(*C.char) *C.char) string {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	reason := open(p)
	if reason == nil {
		return ""
	}
	defer C.free(unsafe.Pointer(reason))
	return fmt.Sprintf("open %s: %s", path, C.GoString(reason))
}

// failure returns the error for the result code of a driver call.
func (m *machine) failure(call string, code C.int) error {
	if code == 0 {
		return nil
	}
	name := "unknown error"
	if text := C.psyche_cuda_error_name(m.driver, code); text != nil {
		name = C.GoString(text)
	}
	return fmt.Errorf("%s: %s (%d)", call, name, int(code))
}

// unchanged is failure for a call that allocates memory before it does anything else.
func (m *machine) unchanged(call string, code C.int) error {
	err := m.failure(call, code)
	if code == errorOutOfMemory {
		err = fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return err
}

func (m *machine) find(ordinal int) error {
	if err := m.failure("cuInit", C.psyche_cuInit(m.driver, 0)); err != nil {
		return err
	}
	var count C.int
	if err := m.failure("cuDeviceGetCount", C.psyche_cuDeviceGetCount(m.driver, &count)); err != nil {
		return err
	}
	if ordinal < 0 || ordinal >= int(count) {
		return fmt.Errorf("no device %d, only %d found", ordinal, int(count))
	}
	if err := m.failure("cuDeviceGet", C.psyche_cuDeviceGet(m.driver, &m.device, C.int(ordinal))); err != nil {
		return err
	}
	var name [256]C.char
	if err := m.failure("cuDeviceGetName", C.psyche_cuDeviceGetName(m.driver, &name[0], C.int(len(name)), m.device)); err != nil {
		return err
	}
	m.name = C.GoString(&name[0])
	var values [3]C.int
	for i, attribute := range []C.int{attributeComputeMajor, attributeComputeMinor, attributeMultiprocessors} {
		if err := m.failure("cuDeviceGetAttribute", C.psyche_cuDeviceGetAttribute(m.driver, &values[i], attribute, m.device)); err != nil {
			return err
		}
	}
	m.compute = int(values[0])*10 + int(values[1])
	m.blocks = int(values[2]) * blocksPerMultiprocessor
	return m.failure("cuDevicePrimaryCtxRetain", C.psyche_cuDevicePrimaryCtxRetain(m.driver, &m.context, m.device))
}

// load loads the kernels of this package.
func (m *machine) load(ptx []byte) (err error) {
	if m.module, err = m.loadModule(ptx); err != nil {
		return err
	}
	for _, name := range kernelNames {
		if m.kernels[name], err = m.function(m.module, name); err != nil {
			return err
		}
	}
	return nil
}

// loadModule passes compiled kernels to the driver.
func (m *machine) loadModule(ptx []byte) (module unsafe.Pointer, err error) {
	var log [4096]C.char
	code := C.psyche_cuda_load(m.driver, &module, (*C.char)(unsafe.Pointer(unsafe.SliceData(ptx))), &log[0], C.uint(len(log)-1))
	if err := m.failure("cuModuleLoadDataEx", code); err != nil {
		err = fmt.Errorf("load the kernels, compiled for compute capability %d: %w: %s", m.compute, err, C.GoString(&log[0]))
		if code == errorUnsupportedPTX {
			err = fmt.Errorf("%w: the driver is older than NVRTC; install a newer driver, or set %s to an NVRTC that is not newer than the driver: %w", ErrNoCUDA, EnvNVRTC, err)
		}
		return nil, err
	}
	return module, nil
}

// function returns a kernel of a module.
func (m *machine) function(module unsafe.Pointer, name string) (kernel unsafe.Pointer, err error) {
	symbol := C.CString(name)
	defer C.free(unsafe.Pointer(symbol))
	return kernel, m.failure("cuModuleGetFunction "+name, C.psyche_cuModuleGetFunction(m.driver, &kernel, module, symbol))
}

// within calls f on a thread on which the context is current. A context belongs to an operating
// system thread. within restores the context that was current before.
func (m *machine) within(f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := m.failure("cuCtxPushCurrent", C.psyche_cuCtxPushCurrent(m.driver, m.context)); err != nil {
		return err
	}
	defer func() {
		var popped unsafe.Pointer
		err = errors.Join(err, m.failure("cuCtxPopCurrent", C.psyche_cuCtxPopCurrent(m.driver, &popped)))
	}()
	return f()
}

func (m *machine) alloc(bytes int) (DevicePointer, error) {
	var address C.uint64_t
	if err := m.unchanged("cuMemAlloc", C.psyche_cuMemAlloc(m.driver, &address, C.size_t(bytes))); err != nil {
		return 0, fmt.Errorf("allocate %d bytes on the device: %w", bytes, err)
	}
	return DevicePointer(address), nil
}

func (m *machine) free(p DevicePointer) error {
	return m.failure("cuMemFree", C.psyche_cuMemFree(m.driver, C.uint64_t(p)))
}

func (m *machine) write(to DevicePointer, from []byte) error {
	m.traffic.Copies++
	m.traffic.Up += int64(len(from))
	return m.failure("cuMemcpyHtoD", C.psyche_cuMemcpyHtoD(m.driver, C.uint64_t(to), unsafe.Pointer(unsafe.SliceData(from)), C.size_t(len(from))))
}

func (m *machine) read(to []byte, from DevicePointer) error {
	m.traffic.Copies++
	m.traffic.Down += int64(len(to))
	return m.failure("cuMemcpyDtoH", C.psyche_cuMemcpyDtoH(m.driver, unsafe.Pointer(unsafe.SliceData(to)), C.uint64_t(from), C.size_t(len(to))))
}

// launch starts a kernel over the given number of work items, with shared bytes of dynamic shared
// memory.
func (m *machine) launch(kernel string, work, shared int, arguments unsafe.Pointer) error {
	const granted = 48 << 10 // shared memory that a block may use without requesting more
	function := m.kernels[kernel]
	m.traffic.Launches++
	if shared > granted-staticShared {
		code := C.psyche_cuFuncSetAttribute(m.driver, function, functionDynamicShared, C.int(shared))
		if err := m.failure("cuFuncSetAttribute", code); err != nil {
			return fmt.Errorf("%s: %d bytes of shared memory: %w", kernel, shared, err)
		}
	}
	code := C.psyche_cuda_launch(m.driver, function, C.uint(min(work, m.blocks)), threads, C.uint(shared), arguments)
	if err := m.unchanged("cuLaunchKernel", code); err != nil {
		return fmt.Errorf("%s: %w", kernel, err)
	}
	return nil
}

// wait waits for the end of the kernels, and returns their error.
func (m *machine) wait() error {
	return m.failure("cuCtxSynchronize", C.psyche_cuCtxSynchronize(m.driver))
}

// close releases the module and the context. The libraries stay open.
func (m *machine) close() error {
	var err error
	if m.module != nil {
		err = m.within(func() error { return m.failure("cuModuleUnload", C.psyche_cuModuleUnload(m.driver, m.module)) })
	}
	err = errors.Join(err, m.failure("cuDevicePrimaryCtxRelease", C.psyche_cuDevicePrimaryCtxRelease(m.driver, m.device)))
	C.free(unsafe.Pointer(m.driver))
	m.driver = nil
	return err
}
