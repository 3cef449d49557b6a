package cuda

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/learn/distro"
)

// Model computes on all tensors of a model at once, on one device. Each method takes the tensors in
// the order of the layouts. Its methods may be called concurrently; they run one at a time.
type Model struct {
	device  *Device
	layouts []distro.Layout
	topK    int
	entries int // of a result, in all chunks of all tensors
	memory  DevicePointer
	plans   DevicePointer
	firsts  DevicePointer // number of the first entry of each tensor
	staging int           // bytes of results that Apply uploads together, if they have several tensors
	// The work items of the kernels.
	chunks, strips, blocks, samples items
}

// items are the work items of a kernel. The items of tensor i are firsts[i] to firsts[i+1].
type items struct {
	firsts []int64
	at     DevicePointer // copy of firsts on the device
}

func (i items) count() int { return int(i.firsts[len(i.firsts)-1]) }

// of returns the number of items of a part of the model.
func (i items) of(p part) int { return int(i.firsts[p.end] - i.firsts[p.first]) }

// part is a part of a model: the tensors first to end. size is the size of their results in bytes.
type part struct{ first, end, size int }

// The constants of measure.cu with these names.
const (
	blockSize  = 1 << 16 // BLOCK
	sampleStep = 1 << 12 // SAMPLE_STEP
	whole      = 1 << 15 // WHOLE
)

const defaultStaging = 256 << 20

// NewModel prepares a device for the tensors of a model. topK is the maximum number of coefficients
// of a chunk in the results of Encode. The caller must close the model before the device.
func (d *Device) NewModel(layouts []distro.Layout, topK int) (*Model, error) {
	if len(layouts) == 0 || topK < 1 {
		return nil, fmt.Errorf("model: %w: %d tensors, top-k %d: want at least 1", distro.ErrInput, len(layouts), topK)
	}
	m := &Model{device: d, layouts: layouts, topK: topK, staging: defaultStaging}
	if err := d.within(m.build); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return m, nil
}

// build writes the tables of the model to the device.
func (m *Model) build(machine *machine) error {
	var plans []planArguments
	var entries []int64
	for _, i := range m.items() {
		i.firsts = []int64{0}
	}
	for _, l := range m.layouts {
		plan, err := m.device.plan(machine, l)
		if err != nil {
			return err
		}
		plans = append(plans, plan)
		entries = append(entries, int64(m.entries))
		m.entries += l.Chunks() * l.Codec(m.topK).K
		rows, cols := l.ChunkShape()
		samples := 1
		if l.Elements() > whole {
			samples = divided(l.Elements(), sampleStep)
		}
		for i, n := range []int{l.Chunks(), l.Chunks() * strips(rows, cols), divided(l.Elements(), blockSize), samples} {
			of := m.items()[i]
			of.firsts = append(of.firsts, of.firsts[len(of.firsts)-1]+int64(n))
		}
	}
	image := bytesOf(plans)
	firsts := len(image)
	image = append(image[:firsts:firsts], bytesOf(entries)...)
	for _, i := range m.items() {
		i.at = DevicePointer(len(image))
		image = append(image, bytesOf(i.firsts)...)
	}
	at, err := machine.alloc(len(image))
	if err != nil {
		return err
	}
	m.memory, m.plans, m.firsts = at, at, at+DevicePointer(firsts)
	for _, i := range m.items() {
		i.at += at
	}
	err = machine.write(at, image)
	if err == nil {
		err = m.device.reserve(machine, m.ofStep())
	}
	if err != nil {
		return errors.Join(err, machine.free(at))
	}
	return nil
}

// ofStep returns the staging memory that a step needs at most, without the results of other members, in bytes. It is
// reserved when the model is made, so that no step fails for lack of it.
func (m *Model) ofStep() int {
	const ofTensor = 256 // more than addresses, descriptors and alignments take
	_, _, _, result := m.offsets()
	return ofTensor*len(m.layouts) + max(result+m.sizeOfLevels()+8*m.samples.count(), 32*m.chunks.count(), 8*m.blocks.count())
}

func (m *Model) items() []*items { return []*items{&m.chunks, &m.strips, &m.blocks, &m.samples} }

// divided returns n/by, rounded up.
func divided(n, by int) int { return (n + by - 1) / by }

// Close frees the model's memory on the device. A second call does nothing.
func (m *Model) Close() error {
	return m.device.within(func(machine *machine) error {
		if m.memory == 0 {
			return nil
		}
		at := m.memory
		m.memory = 0
		return machine.free(at)
	})
}

// within calls f with exclusive use of the device, unless the model is closed.
func (m *Model) within(f func(*machine) error) error {
	return m.device.within(func(machine *machine) error {
		if m.memory == 0 {
			return fmt.Errorf("model: %w", errClosed)
		}
		return f(machine)
	})
}

// of returns the model's tables for a kernel.
func (m *Model) of(i items) modelArguments { return m.partOf(i, part{end: len(m.layouts)}) }

// partOf returns the tables of a part of the model.
func (m *Model) partOf(i items, p part) modelArguments {
	return modelArguments{
		plans:   m.plans + DevicePointer(p.first*int(unsafe.Sizeof(planArguments{}))),
		firsts:  i.at + DevicePointer(8*p.first),
		tensors: int64(p.end - p.first),
	}
}

// check rejects tensors that do not match the layouts.
func (m *Model) check(subject string, tensors []Tensor) error {
	if len(tensors) != len(m.layouts) {
		return fmt.Errorf("%w: %d tensors of %s, want %d", distro.ErrInput, len(tensors), subject, len(m.layouts))
	}
	for i, l := range m.layouts {
		if tensors[i].Elements != l.Elements() {
			return fmt.Errorf("%w: tensor %d: %d %s for %d elements", distro.ErrInput, i, tensors[i].Elements, subject, l.Elements())
		}
		if err := tensors[i].check(subject); err != nil {
			return fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return nil
}

// Norm returns the L2 norm of tensors, given the output of Squares for each. It is finite exactly if all elements are
// finite.
func Norm(squares [][]float64) float64 {
	sum := 0.0
	for _, blocks := range squares {
		for _, block := range blocks {
			sum += block
		}
	}
	return math.Sqrt(sum)
}

// Squares returns the sums of the squares in the blocks of each tensor, computed in double precision. The sums do not
// depend on the other tensors.
func (m *Model) Squares(tensors []Tensor) ([][]float64, error) {
	if err := m.check("numbers", tensors); err != nil {
		return nil, fmt.Errorf("squares: %w", err)
	}
	sums := make([]float64, m.blocks.count())
	err := m.within(func(machine *machine) error {
		t := m.device.newTransfer(machine)
		addresses, to := t.addresses(tensors), t.output(8*len(sums))
		if err := t.send(); err != nil {
			return err
		}
		arguments := squareArguments{model: m.of(m.blocks), tensors: t.at(addresses), sums: t.at(to)}
		if err := machine.launch(kernelSquares, len(sums), 0, unsafe.Pointer(&arguments)); err != nil {
			return err
		}
		return t.receive(bytesOf(sums), to)
	})
	if err != nil {
		return nil, fmt.Errorf("squares: %w", err)
	}
	squares := make([][]float64, len(tensors))
	for i := range squares {
		squares[i] = sums[m.blocks.firsts[i]:m.blocks.firsts[i+1]]
	}
	return squares, nil
}

// eachTensor calls f for each tensor, on several goroutines.
func (m *Model) eachTensor(f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range m.layouts {
		group.Go(func() error {
			if err := f(i); err != nil {
				return fmt.Errorf("tensor %d: %w", i, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// strips returns the number of strips of a chunk: see strip_width in kernel.cu.
func strips(rows, cols int) int {
	width := threads
	if rows > 4096/threads {
		width = 4096 / distro.MaxChunk
	}
	return divided(cols, width)
}
