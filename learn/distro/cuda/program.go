package cuda

import (
	"fmt"
	"unsafe"
)

// Program is CUDA text that was compiled for a device, with kernels that C code launches by name.
type Program struct {
	device  *Device
	program *program // nil after Close
}

// Compile compiles text that includes no files. Each of the kernels takes one argument, without
// dynamic shared memory, in blocks of a number of threads. The caller must close the program before the
// device.
func (d *Device) Compile(text string, kernels []string, threads int) (*Program, error) {
	p := &Program{device: d}
	err := d.within(func(m *machine) (err error) {
		p.program, err = m.compileProgram(d.libraries.nvrtc(), text, kernels, threads)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("compile a program: %w", err)
	}
	return p, nil
}

// Launcher returns a C function that launches a kernel on the default stream, and the value for its
// first parameter. learn/torch/abi.h declares the function as pt_launch. It may run concurrently on
// several threads until Close.
func (p *Program) Launcher() (function, context unsafe.Pointer) { return p.program.launcher() }

// Close unloads the program.
func (p *Program) Close() error {
	if p.program == nil {
		return nil
	}
	err := p.device.within(func(*machine) error { return p.program.close() })
	p.program = nil
	return err
}
