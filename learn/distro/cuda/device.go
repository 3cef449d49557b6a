package cuda

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/learn/distro"
)

// ErrNoCUDA means that there is no usable CUDA device, or no driver or NVRTC for it, or that the
// driver is too old for the output of NVRTC.
var ErrNoCUDA = errors.New("no usable CUDA device")

// ErrMemory means that memory of a device could not be allocated. The failed call has changed nothing.
var ErrMemory = errors.New("out of memory on the CUDA device")

// errClosed means that a Device was closed.
var errClosed = errors.New("closed")

// DevicePointer is an address in a device's memory.
type DevicePointer uint64

// Tensor is a contiguous float32 tensor in a device's memory, row-major.
type Tensor struct {
	Address  DevicePointer
	Elements int
}

// check rejects addresses that cannot belong to such a tensor. It cannot detect all invalid
// addresses.
func (t Tensor) check(subject string) error {
	if t.Address == 0 || t.Address%4 != 0 {
		return fmt.Errorf("%w: %s at address %#x", distro.ErrInput, subject, uint64(t.Address))
	}
	return nil
}

// staticShared is an upper bound, in bytes, on the shared memory that psyche_distro_encode uses in
// addition to the amount given at launch.
const staticShared = 8 << 10

// maxResults is the largest number of results whose votes the kernels can add in 16 bits.
const maxResults = math.MaxUint16 / assign.FullVote

// Device computes on one CUDA device. Its methods may be called concurrently; they run one at a
// time.
type Device struct {
	name      string
	libraries libraries
	mu        sync.Mutex
	machine   *machine // nil after Close
	tables    map[int]DevicePointer
	secants   DevicePointer
	staging   space
	image     []byte // content to write to staging
}

// Traffic counts the work of a Device.
type Traffic struct {
	Launches, Copies int64 // of kernels, and between host and device
	Up, Down         int64 // bytes copied to the device, and from it
}

// space is memory of the device that can grow.
type space struct {
	at   DevicePointer
	size int
}

// Open opens a device by its number, from 0, and compiles the kernels for it. ErrNoCUDA means that
// CUDA is not usable here; the message has the reason. Other errors come from the driver or the
// compiler.
func Open(device int) (*Device, error) { return open(systemLibraries(), device) }

// OpenWith is like Open, but loads the driver and NVRTC from the given files, for example the
// library of package cudatest.
func OpenWith(driver, nvrtc string, device int) (*Device, error) {
	return open(libraries{driver: []string{driver}, nvrtc: func() []string { return []string{nvrtc} }}, device)
}

func open(libraries libraries, device int) (*Device, error) {
	m, err := openMachine(libraries, device)
	if err != nil {
		return nil, fmt.Errorf("open CUDA device %d: %w", device, err)
	}
	return &Device{name: m.name, libraries: libraries, machine: m, tables: map[int]DevicePointer{}}, nil
}

// Close frees the resources of this package on the device.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machine == nil {
		return nil
	}
	err := d.machine.within(func() error {
		var err error
		for _, p := range d.tables {
			err = errors.Join(err, d.machine.free(p))
		}
		for _, p := range []DevicePointer{d.secants, d.staging.at} {
			if p != 0 {
				err = errors.Join(err, d.machine.free(p))
			}
		}
		return err
	})
	err = errors.Join(err, d.machine.close())
	d.machine = nil
	return err
}

// Traffic returns the counts since the device was opened. They are zero after Close.
func (d *Device) Traffic() Traffic {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machine == nil {
		return Traffic{}
	}
	return d.machine.traffic
}

// within calls f with exclusive use of the device and with its context current.
func (d *Device) within(f func(m *machine) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machine == nil {
		return fmt.Errorf("CUDA device: %w", errClosed)
	}
	return d.machine.within(func() error { return f(d.machine) })
}

// reserve makes the staging memory large enough. It may discard the contents. If the device is short of
// memory, the staging memory keeps its size.
func (d *Device) reserve(m *machine, size int) error {
	if size <= d.staging.size {
		return nil
	}
	had := d.staging
	d.staging = space{}
	if had.at != 0 {
		if err := m.free(had.at); err != nil {
			return err
		}
	}
	at, err := m.alloc(size)
	if err == nil {
		d.staging = space{at: at, size: size}
		return nil
	}
	if had.size > 0 && errors.Is(err, ErrMemory) {
		if again, failed := m.alloc(had.size); failed == nil {
			d.staging = space{at: again, size: had.size}
		}
	}
	return err
}

// plan returns a layout's plan. It copies the plan's tables to the device's memory if necessary.
func (d *Device) plan(m *machine, l distro.Layout) (planArguments, error) {
	p := l.Plan()
	for _, axis := range []distro.Axis{p.Column, p.Row} {
		if d.tables[axis.N] != 0 {
			continue
		}
		at, err := store(m, axis.Basis)
		if err != nil {
			return planArguments{}, err
		}
		d.tables[axis.N] = at
	}
	if d.secants == 0 {
		at, err := store(m, p.Secants)
		if err != nil {
			return planArguments{}, err
		}
		d.secants = at
	}
	return planFor(p, d.tables[p.Column.N], d.tables[p.Row.N], d.secants), nil
}

// store copies numbers to new memory of the device.
func store(m *machine, values []float32) (DevicePointer, error) {
	at, err := m.alloc(4 * len(values))
	if err != nil {
		return 0, err
	}
	if err := m.write(at, bytesOf(values)); err != nil {
		return 0, errors.Join(err, m.free(at))
	}
	return at, nil
}
