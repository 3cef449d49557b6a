package train

import (
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/learn/torch"
)

// momenta holds the momentum of DisTrO, or the residual of local steps: a tensor for each parameter,
// in the order of the parameters' names. Values are initially zero. buffers holds them in the memory
// of the CPU, resident in the memory of a device.
type momenta interface {
	// keepBefore makes momenta keep the values from before a step.
	keepBefore() error
	// swap restores the values from before the newest step. A second call undoes that.
	swap()
	// leaves returns the leaves of the hash tree of the values, given what a step has taken from them.
	leaves(taken []codec.TensorResult) ([][32]byte, error)
	// chunk returns a copy of a chunk of a tensor, before the newest step or after it.
	chunk(tensor, within int, before bool) ([]float32, error)
}

// momentum is momenta for the steps of DisTrO and the rounds of local steps.
type momentum interface {
	momenta
	// norm returns the L2 norm of gradients, in double precision, so that it is finite exactly if
	// every element is.
	norm(gradients vectors) (float64, error)
	// encode adds the gradients and takes the largest coefficients of each chunk. If it fails, some
	// chunks may have changed; swap restores them if the values from before are kept.
	// A chunk whose coefficients are all below its tensor's floor (see distro.Kernel.Floor) or below least
	// keeps them; noFloor means that there is no floor.
	encode(gradients vectors, p distro.EncodeParams, least float32) ([]codec.TensorResult, error)
	// encodeLevels adds pseudo-gradients, and subtracts the levels that it returns, as encode does without a floor.
	encodeLevels(gradients vectors, p localsteps.EncodeParams) ([]codec.TensorResult, error)
	// addBack adds coefficients to the values.
	addBack(results []codec.TensorResult) error
	// clear sets the values to zero.
	clear() error
	// read returns the values, in the memory of the CPU: their own memory, or a copy.
	read() ([][]float32, error)
	// readInside is read for callers on the thread of the engine that computed the gradients.
	readInside() [][]float32
	// write overwrites the values.
	write(values [][]float32) error
}

// vectors contains a tensor for each parameter, such as the gradients: in the memory of the CPU, or
// in the memory of a device.
type vectors struct {
	here  [][]float32
	there []*torch.Tensor
	scope *torch.Scope // of the device's engine
}

// taking encodes a step on the CPU.
type taking func(b *buffers, gradients vectors) ([]codec.TensorResult, error)

// buffers is a momentum in the memory of the CPU.
type buffers struct {
	kernel  *distro.Kernel
	layouts []distro.Layout
	now     [][]float32
	before  [][]float32 // from before the newest step; nil: not kept
}

func newBuffers(kernel *distro.Kernel, layouts []distro.Layout) *buffers {
	return &buffers{kernel: kernel, layouts: layouts, now: zeros(layouts)}
}

// zeros returns a slice for each layout. Zeros use memory only after the first access.
func zeros(layouts []distro.Layout) (values [][]float32) {
	for _, l := range layouts {
		values = append(values, make([]float32, l.Elements()))
	}
	return values
}

func (b *buffers) keepBefore() error {
	b.before = zeros(b.layouts)
	return nil
}

// begin begins a step, which reads the values that begin returns and writes all of now. With one
// buffer both are the same.
func (b *buffers) begin() (from [][]float32) {
	if b.before == nil {
		return b.now
	}
	b.swap()
	return b.before
}

func (b *buffers) swap() { b.now, b.before = b.before, b.now }

func (b *buffers) leaves(taken []codec.TensorResult) (leaves [][32]byte, err error) {
	for i, l := range b.layouts {
		_, ofTensor, err := b.kernel.Leaves(l, b.now[i], taken[i])
		if err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
		leaves = append(leaves, ofTensor...)
	}
	return leaves, nil
}

func (b *buffers) chunk(tensor, within int, before bool) ([]float32, error) {
	values := b.now
	if before {
		values = b.before
	}
	return b.layouts[tensor].Chunk(values[tensor], within, nil), nil
}

func (b *buffers) norm(gradients vectors) (float64, error) { return norm(gradients.here), nil }

func (b *buffers) encode(gradients vectors, p distro.EncodeParams, least float32) ([]codec.TensorResult, error) {
	from, taken := b.begin(), make([]codec.TensorResult, len(b.layouts))
	for i, l := range b.layouts {
		var err error
		p.Floor = floor(b.kernel, from[i], gradients.here[i], p, least)
		if taken[i], err = b.kernel.EncodeTo(l, from[i], b.now[i], gradients.here[i], p); err != nil {
			return nil, fmt.Errorf("encode tensor %d: %w", i, err)
		}
	}
	return taken, nil
}

// encodeLevels quantizes as many tensors at a time as the kernel has threads.
func (b *buffers) encodeLevels(gradients vectors, p localsteps.EncodeParams) ([]codec.TensorResult, error) {
	largest, err := b.encode(gradients, p.Largest(), noFloor)
	if err != nil {
		return nil, err
	}
	levels := make([]codec.TensorResult, len(b.layouts))
	var group errgroup.Group
	group.SetLimit(b.kernel.Threads())
	for i, l := range b.layouts {
		group.Go(func() error {
			levels[i] = localsteps.Quantize(l, largest[i], p)
			return nil
		})
	}
	return levels, errors.Join(group.Wait(), b.addBack(largest))
}

// noFloor makes encode take coefficients of any size.
const noFloor = -1

func floor(kernel *distro.Kernel, values, gradient []float32, p distro.EncodeParams, least float32) float32 {
	if least < 0 {
		return 0
	}
	return max(kernel.Floor(values, gradient, p), least)
}

func (b *buffers) addBack(results []codec.TensorResult) error {
	for i, r := range results {
		if err := b.kernel.AddBack(b.layouts[i], b.now[i], r); err != nil {
			return fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return nil
}

func (b *buffers) clear() error {
	clearAll(b.now)
	return nil
}

func (b *buffers) read() ([][]float32, error) { return b.now, nil }

func (b *buffers) readInside() [][]float32 { return b.now }

func (b *buffers) write(values [][]float32) error {
	copyAll(b.now, values)
	return nil
}
