package cuda

import (
	"fmt"
	"sort"
	"unsafe"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// digests returns audit.Digest of each chunk, in the order of tensors and chunks.
func (m *Model) digests(tensors []Tensor) ([][32]byte, error) {
	if err := m.check("numbers", tensors); err != nil {
		return nil, fmt.Errorf("digests: %w", err)
	}
	digests := make([][32]byte, m.chunks.count())
	err := m.within(func(machine *machine) error {
		t := m.device.newTransfer(machine)
		addresses, to := t.addresses(tensors), t.output(32*len(digests))
		if err := t.send(); err != nil {
			return err
		}
		arguments := digestArguments{model: m.of(m.chunks), tensors: t.at(addresses), digests: t.at(to)}
		if err := machine.launch(kernelDigest, divided(len(digests), threads), 0, unsafe.Pointer(&arguments)); err != nil {
			return err
		}
		return t.receive(bytesOf(digests), to)
	})
	if err != nil {
		return nil, fmt.Errorf("digests: %w", err)
	}
	return digests, nil
}

// Leaves returns audit.Leaf of each chunk, in the order of tensors and chunks: see
// distro.Kernel.Leaves. The device hashes the momenta, so they stay there.
func (m *Model) Leaves(delta []Tensor, taken []codec.TensorResult) ([][32]byte, error) {
	if err := m.checkResult("momenta", delta, taken); err != nil {
		return nil, fmt.Errorf("leaves: %w", err)
	}
	leaves, err := m.digests(delta)
	if err != nil {
		return nil, fmt.Errorf("leaves: %w", err)
	}
	err = m.eachTensor(func(i int) error {
		chunks := m.layouts[i].Chunks()
		ofTensor := leaves[m.chunks.firsts[i]:]
		for c := range chunks {
			ofTensor[c] = audit.Leaf(ofTensor[c], distro.TakenOf(taken[i], c, chunks))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("leaves: %w", err)
	}
	return leaves, nil
}

// tensor returns the tensor of a chunk, counted over all tensors.
func (m *Model) tensor(chunk int) int {
	return sort.Search(len(m.layouts), func(i int) bool { return m.chunks.firsts[i+1] > int64(chunk) })
}

// Chunk reads a chunk of tensor i. Its elements have the order of distro.Layout.Chunk.
func (m *Model) Chunk(tensor Tensor, i, chunk int) ([]float32, error) {
	if i < 0 || i >= len(m.layouts) || chunk < 0 || chunk >= m.layouts[i].Chunks() {
		return nil, fmt.Errorf("chunk %d of tensor %d: %w", chunk, i, distro.ErrInput)
	}
	if tensor.Elements != m.layouts[i].Elements() {
		return nil, fmt.Errorf("chunk: %w: %d elements, want %d", distro.ErrInput, tensor.Elements, m.layouts[i].Elements())
	}
	tensors := make([]Tensor, len(m.layouts))
	tensors[i] = tensor
	chunks, err := m.Chunks(tensors, []uint32{uint32(m.chunks.firsts[i]) + uint32(chunk)})
	if err != nil {
		return nil, err
	}
	return chunks[0], nil
}

// Chunks reads chunks, which are numbered in the order of tensors and chunks, as in package audit. It
// uses only the tensors of these chunks.
func (m *Model) Chunks(tensors []Tensor, numbers []uint32) ([][]float32, error) {
	if len(tensors) != len(m.layouts) {
		return nil, fmt.Errorf("chunks: %w: %d tensors, want %d", distro.ErrInput, len(tensors), len(m.layouts))
	}
	list, starts := make([]int64, len(numbers)), make([]int64, len(numbers)+1)
	for i, number := range numbers {
		if int(number) >= m.chunks.count() {
			return nil, fmt.Errorf("chunks: %w: chunk %d of %d", distro.ErrInput, number, m.chunks.count())
		}
		tensor := m.tensor(int(number))
		if err := tensors[tensor].check("numbers"); err != nil {
			return nil, fmt.Errorf("chunks: tensor %d: %w", tensor, err)
		}
		list[i], starts[i+1] = int64(number), starts[i]+int64(m.layouts[tensor].ChunkSize())
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	values := make([]float32, starts[len(numbers)])
	if err := m.within(func(machine *machine) error { return m.gather(machine, tensors, list, starts, values) }); err != nil {
		return nil, fmt.Errorf("chunks: %w", err)
	}
	chunks := make([][]float32, len(numbers))
	for i := range chunks {
		chunks[i] = values[starts[i]:starts[i+1]:starts[i+1]]
	}
	return chunks, nil
}

func (m *Model) gather(machine *machine, tensors []Tensor, numbers, starts []int64, to []float32) error {
	t := m.device.newTransfer(machine)
	addresses, list, places, room := t.addresses(tensors), t.input(bytesOf(numbers)), t.input(bytesOf(starts)), t.output(4*len(to))
	if err := t.send(); err != nil {
		return err
	}
	arguments := gatherArguments{
		model: m.of(m.chunks), tensors: t.at(addresses), numbers: t.at(list), starts: t.at(places),
		count: int64(len(numbers)), to: t.at(room),
	}
	if err := machine.launch(kernelGather, len(numbers), 0, unsafe.Pointer(&arguments)); err != nil {
		return err
	}
	return t.receive(bytesOf(to), room)
}
