package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// ApplyLevels is localsteps.Apply for all tensors, bit for bit. results[r][i] is result r of tensor i.
// It checks every argument before it changes any weight. After an error of the driver the weights are
// undefined.
func (m *Model) ApplyLevels(results [][]codec.TensorResult, weights []Tensor, p localsteps.ApplyParams) error {
	scales, err := m.checkLevels(results, weights, p)
	if err == nil && len(results) > 0 {
		err = m.within(func(machine *machine) error {
			return m.eachPart(results, func(part part) error { return m.applyLevels(machine, part, results, weights, scales) })
		})
	}
	if err != nil {
		return fmt.Errorf("apply levels: %w", err)
	}
	return nil
}

// checkLevels rejects results that do not match the tensors, and returns the factors of each tensor.
func (m *Model) checkLevels(results [][]codec.TensorResult, weights []Tensor, p localsteps.ApplyParams) ([]localsteps.Scales, error) {
	if err := m.check("weights", weights); err != nil {
		return nil, err
	}
	if !(p.Reach >= 0) || !(p.Rate >= 0) || !(p.Reach <= math.MaxFloat32) || !(p.Rate <= math.MaxFloat32) {
		return nil, fmt.Errorf("%w: reach %v, rate %v", distro.ErrInput, p.Reach, p.Rate)
	}
	if err := p.Votes.Check(len(results)); err != nil {
		return nil, err
	}
	for r, result := range results {
		if len(result) != len(m.layouts) {
			return nil, fmt.Errorf("result %d: %w: %d tensors, want %d", r, distro.ErrInput, len(result), len(m.layouts))
		}
	}
	scales := make([]localsteps.Scales, len(m.layouts))
	return scales, m.eachTensor(func(i int) error {
		l, ofTensor := m.layouts[i], make([]codec.TensorResult, len(results))
		for r, result := range results {
			ofTensor[r] = result[i]
			layout := codec.TensorLayout{Chunks: l.Chunks(), ChunkSize: l.ChunkSize(), K: len(result[i].Indices) / l.Chunks()}
			if err := layout.CheckLevels(result[i], p.LevelBits); err != nil {
				return fmt.Errorf("result %d: %w: %w", r, distro.ErrInput, err)
			}
		}
		scales[i] = localsteps.ScalesOf(l, ofTensor, p)
		return nil
	})
}

// applyLevels applies results to a part of the model.
func (m *Model) applyLevels(machine *machine, p part, results [][]codec.TensorResult, weights []Tensor, scales []localsteps.Scales) error {
	var reach, shares []float64
	for _, s := range scales[p.first:p.end] {
		reach = append(reach, s.Reach)
	}
	for r := range results {
		for _, s := range scales[p.first:p.end] {
			shares = append(shares, s.Shares[r])
		}
	}
	t := m.device.newTransfer(machine)
	to, sent, sharesAt, reachAt := t.addresses(weights[p.first:p.end]), m.upload(t, p, results, levelsOf, nil), t.input(bytesOf(shares)), t.input(bytesOf(reach))
	means := t.input(make([]byte, (p.end-p.first)*descriptorSize))
	for i, l := range m.layouts[p.first:p.end] {
		places := room(l, results, p.first+i)
		counts, indices, values := t.output(2*l.Chunks()), t.output(2*l.Chunks()*places), t.output(4*l.Chunks()*places)
		t.describe(means+i*descriptorSize, places, assign.FullVote, counts, indices, values)
	}
	if err := t.send(); err != nil {
		return err
	}
	mean := meanArguments{
		model: m.partOf(m.chunks, p), results: t.at(sent), count: int64(len(results)),
		shares: t.at(sharesAt), reach: t.at(reachAt), means: t.at(means), scale: scales[0].Mean,
	}
	if err := machine.launch(kernelMean, m.chunks.of(p), 0, unsafe.Pointer(&mean)); err != nil {
		return err
	}
	add := decodeArguments{model: m.partOf(m.strips, p), results: t.at(means), count: 1, to: t.at(to), votes: assign.FullVote}
	if err := machine.launch(kernelAdd, m.strips.of(p), 0, unsafe.Pointer(&add)); err != nil {
		return err
	}
	return machine.wait()
}

// levelsOf returns the parts of a result of levels, whose values are signed bytes on the device.
func levelsOf(r codec.TensorResult) [][]byte {
	levels := make([]byte, len(r.Values))
	for i, v := range r.Values {
		levels[i] = byte(int8(v))
	}
	return [][]byte{bytesOf(r.Counts), bytesOf(r.Indices), levels, bytesOf(r.Units)}
}

// room returns the maximum number of coefficients of a chunk of tensor i in the mean of results.
func room(l distro.Layout, results [][]codec.TensorResult, i int) int {
	most := 1
	for c := range l.Chunks() {
		together := 0
		for _, result := range results {
			together += int(result[i].Counts[c])
		}
		most = max(most, together)
	}
	return min(most, l.ChunkSize(), math.MaxUint16)
}
