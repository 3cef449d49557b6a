package cuda

import (
	"fmt"
	"unsafe"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// EncodeLevels is localsteps.Encode for all tensors, bit for bit, with the sums delta before and left after
// it. Only the levels leave the device: 3 bytes for each coefficient, and 3 bytes for each chunk. p.TopK must be
// the model's. left may be delta. If EncodeLevels returns distro.ErrNotFinite, it has sent nothing, and left is as
// after Encode.
func (m *Model) EncodeLevels(delta, left, grad []Tensor, p localsteps.EncodeParams) ([]codec.TensorResult, error) {
	const noFloor = -1
	err := p.Check()
	if err != nil {
		err = fmt.Errorf("%w: %w", distro.ErrInput, err)
	} else {
		err = m.checkEncode(delta, left, grad, p.Largest(), noFloor)
	}
	if err != nil {
		return nil, fmt.Errorf("encode levels: %w", err)
	}
	image, bad := make([]byte, m.sizeOfLevels()), []int64{0}
	err = m.within(func(machine *machine) error {
		t := m.device.newTransfer(machine)
		l := m.newLeveling(t, delta, left, grad, p)
		if err := t.send(); err != nil {
			return err
		}
		if err := m.launchEncoding(t, l.encoding, p.Largest(), noFloor); err != nil {
			return err
		}
		if err := t.receive(bytesOf(bad), l.bad); err != nil {
			return err
		}
		if err := m.checkFinite(bad[0]); err != nil {
			return err
		}
		if err := m.launchLeveling(t, l, p); err != nil {
			return err
		}
		return t.receive(image, l.levels)
	})
	if err != nil {
		return nil, fmt.Errorf("encode levels: %w", err)
	}
	return m.levelsIn(image), nil
}

// leveling contains the offsets of an encoding to levels in a transfer.
type leveling struct {
	encoding
	reach  int
	rests  int // descriptors of the coefficients of each tensor that are not sent
	levels int // the result, see positions
}

// positions returns the positions of the parts of the result of a leveling.
func (m *Model) positions() (counts, indices, levels, units, size int) {
	indices = aligned(2 * m.chunks.count())
	levels = indices + aligned(2*m.entries)
	units = levels + aligned(m.entries)
	return 0, indices, levels, units, units + aligned(m.chunks.count())
}

func (m *Model) sizeOfLevels() int {
	_, _, _, _, size := m.positions()
	return size
}

// newLeveling adds the inputs and outputs of an encoding to levels to a transfer.
func (m *Model) newLeveling(t *transfer, delta, left, grad []Tensor, p localsteps.EncodeParams) leveling {
	var reach []float64
	for _, l := range m.layouts {
		reach = append(reach, p.ReachOf(l))
	}
	l := leveling{reach: t.input(bytesOf(reach)), rests: t.input(make([]byte, len(m.layouts)*descriptorSize))}
	l.encoding = m.newEncoding(t, delta, left, grad)
	l.levels = t.output(m.sizeOfLevels())
	entries := 0
	for i, layout := range m.layouts {
		k, chunk := layout.Codec(m.topK).K, int(m.chunks.firsts[i])
		t.describe(l.rests+i*descriptorSize, k, assign.FullVote, l.counts+2*chunk, l.indices+2*entries, l.values+4*entries)
		entries += layout.Chunks() * k
	}
	return l
}

// launchLeveling launches the kernels that round the coefficients of an encoding, and add the rest back.
func (m *Model) launchLeveling(t *transfer, l leveling, p localsteps.EncodeParams) error {
	counts, indices, levels, units, _ := m.positions()
	quantize := quantizeArguments{
		model: m.of(m.chunks), entries: m.firsts,
		counts: t.at(l.counts), indices: t.at(l.indices), values: t.at(l.values),
		sentCounts: t.at(l.levels + counts), sentIndices: t.at(l.levels + indices),
		levels: t.at(l.levels + levels), units: t.at(l.levels + units),
		reach: t.at(l.reach), k: int64(m.topK), most: p.Most(),
	}
	if err := t.machine.launch(kernelLevels, divided(m.chunks.count(), threads), 0, unsafe.Pointer(&quantize)); err != nil {
		return err
	}
	add := decodeArguments{model: m.of(m.strips), results: t.at(l.rests), count: 1, to: t.at(l.lefts), votes: assign.FullVote}
	return t.machine.launch(kernelAdd, m.strips.count(), 0, unsafe.Pointer(&add))
}

// levelsIn returns the results in the memory of a leveling.
func (m *Model) levelsIn(image []byte) (results []codec.TensorResult) {
	countsAt, indicesAt, levelsAt, unitsAt, _ := m.positions()
	counts := unsafe.Slice((*uint16)(unsafe.Pointer(&image[countsAt])), m.chunks.count())
	indices := unsafe.Slice((*uint16)(unsafe.Pointer(&image[indicesAt])), m.entries)
	levels, units := image[levelsAt:], image[unitsAt:]
	for _, l := range m.layouts {
		chunks, n := l.Chunks(), l.Chunks()*l.Codec(m.topK).K
		r := codec.TensorResult{Counts: counts[:chunks:chunks], Indices: indices[:n:n], Units: units[:chunks:chunks], Values: make([]float32, n)}
		for i, level := range levels[:n] {
			r.Values[i] = float32(int8(level))
		}
		results = append(results, r)
		counts, indices, levels, units = counts[chunks:], indices[n:], levels[n:], units[chunks:]
	}
	return results
}
