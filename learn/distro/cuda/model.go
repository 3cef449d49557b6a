package cuda

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/core/codec"
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
	// The work items of the kernels.
	chunks, strips, blocks, samples items
}

// items are the work items of a kernel. The items of tensor i are firsts[i] to firsts[i+1].
type items struct {
	firsts []int64
	at     DevicePointer // copy of firsts on the device
}

func (i items) count() int { return int(i.firsts[len(i.firsts)-1]) }

// The constants of measure.cu with these names.
const (
	blockSize  = 1 << 16 // BLOCK
	sampleStep = 1 << 12 // SAMPLE_STEP
	whole      = 1 << 15 // WHOLE
)

// NewModel prepares a device for the tensors of a model. topK is the maximum number of coefficients
// of a chunk in the results of Encode. The caller must close the model before the device.
func (d *Device) NewModel(layouts []distro.Layout, topK int) (*Model, error) {
	if len(layouts) == 0 || topK < 1 {
		return nil, fmt.Errorf("model: %w: %d tensors, top-k %d: want at least 1", distro.ErrInput, len(layouts), topK)
	}
	m := &Model{device: d, layouts: layouts, topK: topK}
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
	if err := machine.write(at, image); err != nil {
		return errors.Join(err, machine.free(at))
	}
	return nil
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
func (m *Model) of(i items) modelArguments {
	return modelArguments{plans: m.plans, firsts: i.at, tensors: int64(len(m.layouts))}
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

// Norm returns the L2 norm of all tensors together, computed in double precision. It is finite
// exactly if all elements are finite.
func (m *Model) Norm(tensors []Tensor) (float64, error) {
	squares, err := m.squares(tensors)
	if err != nil {
		return 0, fmt.Errorf("norm: %w", err)
	}
	return math.Sqrt(added(squares)), nil
}

// Norms returns the L2 norm of each tensor.
func (m *Model) Norms(tensors []Tensor) ([]float64, error) {
	squares, err := m.squares(tensors)
	if err != nil {
		return nil, fmt.Errorf("norms: %w", err)
	}
	norms := make([]float64, len(m.layouts))
	for i := range norms {
		norms[i] = math.Sqrt(added(squares[m.blocks.firsts[i]:m.blocks.firsts[i+1]]))
	}
	return norms, nil
}

func added(numbers []float64) (sum float64) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// squares returns the sum of the squares of each block of the tensors.
func (m *Model) squares(tensors []Tensor) ([]float64, error) {
	if err := m.check("numbers", tensors); err != nil {
		return nil, err
	}
	sums := make([]float64, m.blocks.count())
	return sums, m.within(func(machine *machine) error {
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
}

// Apply is distro.Kernel.DecodeApply for all tensors, bit for bit. results[r][i] is result r of
// tensor i. It checks every argument before it changes any weight. After an error of the driver the
// weights are undefined.
func (m *Model) Apply(results [][]codec.TensorResult, weights []Tensor, p distro.ApplyParams) error {
	if err := m.checkApply(results, weights, p); err != nil {
		return err
	}
	if err := m.decode(kernelApply, results, weights, p); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	return nil
}

func (m *Model) checkApply(results [][]codec.TensorResult, weights []Tensor, p distro.ApplyParams) error {
	if err := m.check("weights", weights); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if len(results) > maxResults {
		return fmt.Errorf("decode: %w: %d results, at most %d", distro.ErrInput, len(results), maxResults)
	}
	for r, result := range results {
		if len(result) != len(m.layouts) {
			return fmt.Errorf("decode: result %d: %w: %d tensors, want %d", r, distro.ErrInput, len(result), len(m.layouts))
		}
	}
	return m.eachTensor(func(i int) error {
		ofTensor := make([]codec.TensorResult, len(results))
		for r, result := range results {
			ofTensor[r] = result[i]
		}
		return distro.CheckApply(m.layouts[i], ofTensor, weights[i].Elements, p)
	})
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

// AddBack is distro.Kernel.AddBack for all tensors, bit for bit.
func (m *Model) AddBack(delta []Tensor, r []codec.TensorResult) error {
	if err := m.checkResult("momenta", delta, r); err != nil {
		return fmt.Errorf("add back: %w", err)
	}
	if err := m.decode(kernelAdd, [][]codec.TensorResult{r}, delta, distro.ApplyParams{}); err != nil {
		return fmt.Errorf("add back: %w", err)
	}
	return nil
}

// checkResult rejects a result that does not match the tensors.
func (m *Model) checkResult(subject string, tensors []Tensor, r []codec.TensorResult) error {
	if err := m.check(subject, tensors); err != nil {
		return err
	}
	if len(r) != len(m.layouts) {
		return fmt.Errorf("%w: a result of %d tensors, want %d", distro.ErrInput, len(r), len(m.layouts))
	}
	return m.eachTensor(func(i int) error { return distro.CheckAddBack(m.layouts[i], tensors[i].Elements, r[i]) })
}

func (m *Model) decode(kernel string, results [][]codec.TensorResult, tensors []Tensor, p distro.ApplyParams) error {
	return m.within(func(machine *machine) error {
		t := m.device.newTransfer(machine)
		to, rates, sent := t.addresses(tensors), t.input(bytesOf(p.Rates(len(results)))), m.upload(t, results)
		if err := t.send(); err != nil {
			return err
		}
		arguments := decodeArguments{
			model: m.of(m.strips), results: t.at(sent), count: int64(len(results)),
			to: t.at(to), rates: t.at(rates), factor: p.WeightFactor,
		}
		if err := machine.launch(kernel, m.strips.count(), 0, unsafe.Pointer(&arguments)); err != nil {
			return err
		}
		return machine.wait()
	})
}

// upload adds results to a transfer, and returns the offset of their descriptors.
func (m *Model) upload(t *transfer, results [][]codec.TensorResult) (offset int) {
	offset = t.input(make([]byte, len(results)*len(m.layouts)*descriptorSize))
	position := offset
	for _, result := range results {
		for i, r := range result {
			contents := [][]byte{bytesOf(r.Counts), bytesOf(r.Indices), bytesOf(r.Values), bytesOf(r.Units)}
			var parts []int
			for _, content := range contents {
				if len(content) > 0 {
					parts = append(parts, t.input(content))
				}
			}
			t.describe(position, len(r.Indices)/m.layouts[i].Chunks(), parts...)
			position += descriptorSize
		}
	}
	return offset
}

// strips returns the number of strips of a chunk: see strip_width in kernel.cu.
func strips(rows, cols int) int {
	width := threads
	if rows > 4096/threads {
		width = 4096 / distro.MaxChunk
	}
	return divided(cols, width)
}
