package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// Encode is distro.Kernel.EncodeTo for all tensors, bit for bit. The device computes the floor of
// each tensor (see distro.Kernel.Floor) and uses least if that is larger. If least is negative, there is
// no floor. p.Floor has no effect.
// p.TopK must be the model's. left, which may be delta, receives the new momenta.
//
// If Encode returns distro.ErrNotFinite, it has not written the chunks that are not finite, and the
// error names the first of them. It has written the other chunks. Chunks of 128×128 need a device
// with 74 KiB of shared memory for each block.
func (m *Model) Encode(delta, left, grad []Tensor, p distro.EncodeParams, least float32) ([]codec.TensorResult, error) {
	if err := m.checkEncode(delta, left, grad, p, least); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	outcome := m.newEncoded()
	err := m.within(func(machine *machine) error {
		return m.encode(machine, delta, left, grad, p, least, outcome.memory)
	})
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if err := m.checkFinite(outcome.memory[0]); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return outcome.results, nil
}

// checkFinite returns an error if bad is the number of a chunk.
func (m *Model) checkFinite(bad int64) error {
	if bad == math.MaxInt64 {
		return nil
	}
	tensor := m.tensor(int(bad))
	return fmt.Errorf("tensor %d, chunk %d: momentum or gradient: %w", tensor, bad-m.chunks.firsts[tensor], distro.ErrNotFinite)
}

func (m *Model) checkEncode(delta, left, grad []Tensor, p distro.EncodeParams, least float32) error {
	if p.TopK != m.topK {
		return fmt.Errorf("%w: top-k %d, but %d for the model", distro.ErrInput, p.TopK, m.topK)
	}
	for subject, tensors := range map[string][]Tensor{"momenta": delta, "new momenta": left, "gradients": grad} {
		if err := m.check(subject, tensors); err != nil {
			return err
		}
	}
	p.Floor = max(least, 0)
	return distro.CheckEncode(m.layouts[0], delta[0].Elements, grad[0].Elements, p)
}

// encoded is the outcome of an encoding: results in memory of the form that the device writes. That
// is the number of the first chunk that is not finite, and then the values, indices and counts of
// all results, each aligned to 8 bytes.
type encoded struct {
	memory  []int64
	results []codec.TensorResult
}

// offsets returns the positions of the values, indices and counts in the memory of an encoding, and
// its size.
func (m *Model) offsets() (values, indices, counts, size int) {
	values = alignment
	indices = values + aligned(4*m.entries)
	counts = indices + aligned(2*m.entries)
	return values, indices, counts, counts + aligned(2*m.chunks.count())
}

func (m *Model) newEncoded() encoded {
	valuesAt, indicesAt, countsAt, size := m.offsets()
	e := encoded{memory: make([]int64, size/alignment)}
	start := unsafe.Pointer(unsafe.SliceData(e.memory))
	values := unsafe.Slice((*float32)(unsafe.Add(start, valuesAt)), m.entries)
	indices := unsafe.Slice((*uint16)(unsafe.Add(start, indicesAt)), m.entries)
	counts := unsafe.Slice((*uint16)(unsafe.Add(start, countsAt)), m.chunks.count())
	for _, l := range m.layouts {
		chunks, n := l.Chunks(), l.Chunks()*l.Codec(m.topK).K
		e.results = append(e.results, codec.TensorResult{Counts: counts[:chunks:chunks], Indices: indices[:n:n], Values: values[:n:n]})
		values, indices, counts = values[n:], indices[n:], counts[chunks:]
	}
	return e
}

func (m *Model) encode(machine *machine, delta, left, grad []Tensor, p distro.EncodeParams, least float32, to []int64) error {
	t := m.device.newTransfer(machine)
	e := m.newEncoding(t, delta, left, grad)
	if err := t.send(); err != nil {
		return err
	}
	if err := m.launchEncoding(t, e, p, least); err != nil {
		return err
	}
	return t.receive(bytesOf(to), e.bad)
}

// encoding contains the offsets of an encoding in a transfer.
type encoding struct {
	deltas, lefts, grads         int
	bad, values, indices, counts int // the result, in the form of encoded
	sums, floors                 int
}

// newEncoding adds the inputs and the outputs of an encoding to a transfer.
func (m *Model) newEncoding(t *transfer, delta, left, grad []Tensor) encoding {
	e := encoding{deltas: t.addresses(delta), lefts: t.addresses(left), grads: t.addresses(grad)}
	e.bad = t.input(bytesOf([]int64{math.MaxInt64}))
	values, indices, counts, size := m.offsets()
	t.output(size - alignment) // follows bad
	e.values, e.indices, e.counts = e.bad+values, e.bad+indices, e.bad+counts
	e.sums, e.floors = t.output(8*m.samples.count()), t.output(4*len(m.layouts))
	return e
}

// launchEncoding launches the kernels of an encoding.
func (m *Model) launchEncoding(t *transfer, e encoding, p distro.EncodeParams, least float32) error {
	sample := sampleArguments{model: m.of(m.samples), delta: t.at(e.deltas), grad: t.at(e.grads), sums: t.at(e.sums), decay: p.Decay, rate: p.LR}
	if err := t.machine.launch(kernelSamples, m.samples.count(), 0, unsafe.Pointer(&sample)); err != nil {
		return err
	}
	floor := floorArguments{model: m.of(m.samples), sums: t.at(e.sums), floors: t.at(e.floors), least: least}
	if err := t.machine.launch(kernelFloors, len(m.layouts), 0, unsafe.Pointer(&floor)); err != nil {
		return err
	}
	arguments := encodeArguments{
		model: m.of(m.chunks), delta: t.at(e.deltas), grad: t.at(e.grads), left: t.at(e.lefts),
		entries: m.firsts, floors: t.at(e.floors),
		counts: t.at(e.counts), indices: t.at(e.indices), values: t.at(e.values),
		bad: t.at(e.bad), k: int64(m.topK), decay: p.Decay, rate: p.LR,
	}
	return t.machine.launch(kernelEncode, m.chunks.count(), m.sharedMemory(), unsafe.Pointer(&arguments))
}

// sharedMemory returns the dynamic shared memory of the encode kernel, in bytes.
func (m *Model) sharedMemory() (size int) {
	for _, l := range m.layouts {
		rows, cols := l.ChunkShape()
		size = max(size, 4*rows*(cols|1))
	}
	return size
}
