package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// ErrNoCUDA means that there is no usable CUDA device, or no driver or NVRTC for it, or that the
// driver is too old for the output of NVRTC.
var ErrNoCUDA = errors.New("no usable CUDA device")

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

const (
	kernelApply  = "psyche_distro_apply"
	kernelAdd    = "psyche_distro_add"
	kernelEncode = "psyche_distro_encode"
)

// staticShared is an upper bound, in bytes, on the shared memory that psyche_distro_encode uses in
// addition to the amount given at launch.
const staticShared = 8 << 10

// maxResults is the largest number of results that the kernels can count with 16 bits.
const maxResults = math.MaxUint16

// Device computes on one CUDA device. Its methods may be called concurrently; they run one at a
// time.
type Device struct {
	name    string
	mu      sync.Mutex
	machine *machine // nil after Close
	tables  map[int]DevicePointer
	secants DevicePointer
	staging space
	image   []byte // content to write to staging
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
	return &Device{name: m.name, machine: m, tables: map[int]DevicePointer{}}, nil
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

// within calls f with exclusive use of the device and with its context current.
func (d *Device) within(f func(m *machine) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.machine == nil {
		return fmt.Errorf("CUDA device: %w", errClosed)
	}
	return d.machine.within(func() error { return f(d.machine) })
}

// DecodeApply is distro.Kernel.DecodeApply for weights in device memory, bit for bit. It checks
// every argument before it changes any weight. After an error of the driver the weights are
// undefined.
func (d *Device) DecodeApply(l distro.Layout, results []codec.TensorResult, weights Tensor, p distro.ApplyParams) error {
	if err := distro.CheckApply(l, results, weights.Elements, p); err != nil {
		return err
	}
	if len(results) > maxResults {
		return fmt.Errorf("decode: %w: %d results, at most %d", distro.ErrInput, len(results), maxResults)
	}
	if err := d.decode(kernelApply, l, results, weights, p); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

// AddBack is distro.Kernel.AddBack for momenta in device memory, bit for bit.
func (d *Device) AddBack(l distro.Layout, delta Tensor, r codec.TensorResult) error {
	if err := distro.CheckAddBack(l, delta.Elements, r); err != nil {
		return err
	}
	if err := d.decode(kernelAdd, l, []codec.TensorResult{r}, delta, distro.ApplyParams{}); err != nil {
		return fmt.Errorf("add back: %w", err)
	}
	return nil
}

func (d *Device) decode(kernel string, l distro.Layout, results []codec.TensorResult, tensor Tensor, p distro.ApplyParams) error {
	if err := tensor.check("tensor"); err != nil {
		return err
	}
	return d.within(func(m *machine) error {
		plan, err := d.plan(m, l)
		if err != nil {
			return err
		}
		at, rates, err := d.upload(m, l.Chunks(), results, p.Rates(len(results)))
		if err != nil {
			return err
		}
		rows, cols := l.ChunkShape()
		arguments := decodeArguments{
			plan: plan, results: at, count: int64(len(results)),
			tensor: tensor.Address, rates: rates, factor: p.WeightFactor,
		}
		return m.launch(kernel, l.Chunks()*strips(rows, cols), 0, unsafe.Pointer(&arguments))
	})
}

// strips returns the number of strips of a chunk: see strip_width in kernel.cu.
func strips(rows, cols int) int {
	width := threads
	if rows > 4096/threads {
		width = 4096 / distro.MaxChunk
	}
	return (cols + width - 1) / width
}

// upload writes results into the staging memory: a descriptor of each result, then the rates of
// chunks, then the numbers of the results. It returns the addresses of the descriptors and the
// rates.
func (d *Device) upload(m *machine, chunks int, results []codec.TensorResult, rates []float32) (at, ratesAt DevicePointer, err error) {
	const descriptor = int(unsafe.Sizeof(sentArguments{}))
	size := len(results)*descriptor + 4*len(rates)
	for _, r := range results {
		size += 4*len(r.Values) + aligned(2*len(r.Indices)) + aligned(2*len(r.Counts))
	}
	if err := d.reserve(m, size); err != nil {
		return 0, 0, err
	}
	image := slices.Grow(d.image[:0], size)[:len(results)*descriptor]
	here := func() DevicePointer { return d.staging.at + DevicePointer(len(image)) }
	ratesAt = here()
	image = append(image, bytesOf(rates)...)
	for i, r := range results {
		s := sentArguments{places: int64(len(r.Indices) / chunks), values: here()}
		image = append(image, bytesOf(r.Values)...)
		s.indices = here()
		image = appendAligned(image, bytesOf(r.Indices))
		s.counts = here()
		image = appendAligned(image, bytesOf(r.Counts))
		for field, v := range []uint64{uint64(s.counts), uint64(s.indices), uint64(s.values), uint64(s.places)} {
			binary.NativeEndian.PutUint64(image[i*descriptor+8*field:], v)
		}
	}
	d.image = image
	return d.staging.at, ratesAt, m.write(d.staging.at, image)
}

// aligned rounds a size up so that float32 numbers can follow.
func aligned(size int) int { return (size + 3) &^ 3 }

func appendAligned(image, b []byte) []byte {
	image = append(image, b...)
	for len(image)%4 != 0 {
		image = append(image, 0)
	}
	return image
}

// reserve makes the staging memory large enough. It may discard the contents.
func (d *Device) reserve(m *machine, size int) error {
	if size <= d.staging.size {
		return nil
	}
	if d.staging.at != 0 {
		if err := m.free(d.staging.at); err != nil {
			return err
		}
		d.staging = space{}
	}
	at, err := m.alloc(size)
	if err != nil {
		return err
	}
	d.staging = space{at: at, size: size}
	return nil
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

// bytesOf returns the memory of a slice. Machines with CUDA devices are little-endian, like the
// devices.
func bytesOf[T float32 | uint16 | int64](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}
