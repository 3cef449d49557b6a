package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

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

// parts divides a model so that the results of each part are not larger than m.staging, if it has
// several tensors. The first part has the largest results.
func (m *Model) parts(results [][]codec.TensorResult) []part {
	parts := []part{{}}
	for i := range m.layouts {
		size, last := sizeOf(results, i), &parts[len(parts)-1]
		if last.size+size > m.staging && last.end > last.first {
			parts = append(parts, part{first: i})
			last = &parts[len(parts)-1]
		}
		last.end, last.size = i+1, last.size+size
	}
	sortParts(parts)
	return parts
}

func sortParts(parts []part) {
	slices.SortStableFunc(parts, func(a, b part) int { return b.size - a.size })
}

// sizeOf returns the size of the results of a tensor in bytes.
func sizeOf(results [][]codec.TensorResult, tensor int) (size int) {
	for _, result := range results {
		r := result[tensor]
		value := 4
		if r.Units != nil {
			value = 1
		}
		size += value*len(r.Values) + 2*len(r.Indices) + 2*len(r.Counts) + len(r.Units)
	}
	return size
}

// eachPart calls f for the parts of a model. If f returns ErrMemory, it calls f for smaller parts. The largest part is
// the first, because the others then need no more memory. If memory is short after f has changed some tensors, the
// error does not wrap ErrMemory.
func (m *Model) eachPart(results [][]codec.TensorResult, f func(p part) error) error {
	changed := false
	for parts := m.parts(results); len(parts) > 0; {
		p := parts[0]
		err := f(p)
		switch {
		case err == nil:
			parts, changed = parts[1:], true
		case errors.Is(err, ErrMemory) && p.end-p.first > 1:
			parts = append(parts[1:], p.halves(results)...)
			sortParts(parts)
		case errors.Is(err, ErrMemory) && changed:
			return fmt.Errorf("after other tensors have changed: %s", err.Error())
		default:
			return err
		}
	}
	return nil
}

// halves divides a part of several tensors.
func (p part) halves(results [][]codec.TensorResult) []part {
	middle := (p.first + p.end) / 2
	halves := []part{{first: p.first, end: middle}, {first: middle, end: p.end}}
	for i := range halves {
		for tensor := halves[i].first; tensor < halves[i].end; tensor++ {
			halves[i].size += sizeOf(results, tensor)
		}
	}
	return halves
}

func (m *Model) decode(kernel string, results [][]codec.TensorResult, tensors []Tensor, p distro.ApplyParams) error {
	return m.within(func(machine *machine) error {
		return m.eachPart(results, func(part part) error { return m.decodePart(machine, kernel, part, results, tensors, p) })
	})
}

func (m *Model) decodePart(machine *machine, kernel string, part part, results [][]codec.TensorResult, tensors []Tensor, p distro.ApplyParams) error {
	t := m.device.newTransfer(machine)
	to, sent := t.addresses(tensors[part.first:part.end]), m.upload(t, part, results, valuesOf, p.Votes)
	if err := t.send(); err != nil {
		return err
	}
	arguments := decodeArguments{
		model: m.partOf(m.strips, part), results: t.at(sent), count: int64(len(results)),
		to: t.at(to), rate: p.LR, votes: float32(max(p.Votes.Sum(len(results)), 1)), factor: p.WeightFactor,
	}
	if err := machine.launch(kernel, m.strips.of(part), 0, unsafe.Pointer(&arguments)); err != nil {
		return err
	}
	return machine.wait()
}

// valuesOf returns the parts of a result on the device.
func valuesOf(r codec.TensorResult) [][]byte {
	return [][]byte{bytesOf(r.Counts), bytesOf(r.Indices), bytesOf(r.Values)}
}

// upload adds the results of a part to a transfer, and returns the offset of their descriptors. contents returns the
// parts of a result, which are not empty.
func (m *Model) upload(t *transfer, p part, results [][]codec.TensorResult, contents func(codec.TensorResult) [][]byte, votes distro.Votes) (offset int) {
	offset = t.input(make([]byte, len(results)*(p.end-p.first)*descriptorSize))
	position := offset
	for number, result := range results {
		for i, r := range result[p.first:p.end] {
			var offsets []int
			for _, content := range contents(r) {
				offsets = append(offsets, t.input(content))
			}
			t.describe(position, len(r.Indices)/m.layouts[p.first+i].Chunks(), votes.Of(number), offsets...)
			position += descriptorSize
		}
	}
	return offset
}
