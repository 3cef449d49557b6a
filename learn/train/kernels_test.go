package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/learn/torch"
)

// processorKernels are kernels for tensors in the process, by the CPU's kernels.
type processorKernels struct {
	kernel  *distro.Kernel
	layouts []distro.Layout
}

func sliceOf(t cuda.Tensor) []float32 {
	return unsafe.Slice((*float32)(*(*unsafe.Pointer)(unsafe.Pointer(&t.Address))), t.Elements)
}

func slicesOf(tensors []cuda.Tensor) (all [][]float32) {
	for _, t := range tensors {
		all = append(all, sliceOf(t))
	}
	return all
}

// Squares adds the squares in the order of distro.Norm.
func (k processorKernels) Squares(tensors []cuda.Tensor) (squares [][]float64, err error) {
	for _, values := range slicesOf(tensors) {
		var blocks []float64
		for block := range slices.Chunk(values, 1<<16) {
			var sums [16]float64
			for j, v := range block {
				sums[j%len(sums)] += float64(v) * float64(v)
			}
			total := 0.0
			for _, sum := range sums {
				total += sum
			}
			blocks = append(blocks, total)
		}
		squares = append(squares, blocks)
	}
	return squares, nil
}

func (k processorKernels) Encode(delta, left, grad []cuda.Tensor, p distro.EncodeParams, least float32) ([]codec.TensorResult, error) {
	return k.step(delta, left).encode(vectors{here: slicesOf(grad)}, p, least)
}

func (k processorKernels) EncodeLevels(delta, left, grad []cuda.Tensor, p localsteps.EncodeParams) ([]codec.TensorResult, error) {
	return k.step(delta, left).encodeLevels(vectors{here: slicesOf(grad)}, p)
}

// step returns the values of a step that reads delta and writes left.
func (k processorKernels) step(delta, left []cuda.Tensor) *buffers {
	b := &buffers{kernel: k.kernel, layouts: k.layouts, now: slicesOf(left)}
	if delta[0] != left[0] {
		b.now, b.before = slicesOf(delta), slicesOf(left)
	}
	return b
}

func (k processorKernels) Leaves(delta []cuda.Tensor, taken []codec.TensorResult) ([][32]byte, error) {
	return (&buffers{kernel: k.kernel, layouts: k.layouts, now: slicesOf(delta)}).leaves(taken)
}

func (k processorKernels) Chunk(tensor cuda.Tensor, i, chunk int) ([]float32, error) {
	return k.layouts[i].Chunk(sliceOf(tensor), chunk, nil), nil
}

func (k processorKernels) AddBack(delta []cuda.Tensor, r []codec.TensorResult) error {
	return (&buffers{kernel: k.kernel, layouts: k.layouts, now: slicesOf(delta)}).addBack(r)
}

func (k processorKernels) Apply(results [][]codec.TensorResult, weights []cuda.Tensor, p distro.ApplyParams) error {
	for i, w := range slicesOf(weights) {
		if err := k.kernel.DecodeApply(k.layouts[i], ofTensor(results, i), w, p); err != nil {
			return err
		}
	}
	return nil
}

// AdamW makes the step on a new engine, because the caller may occupy the engine of the tensors.
func (k processorKernels) AdamW(weights, grad, means, squares []cuda.Tensor, p cuda.AdamWParams) error {
	engine, err := torch.NewEngine(torch.CPU)
	if err != nil {
		return err
	}
	constants := torch.AdamW{Beta1: p.Beta1, Beta2: p.Beta2, Epsilon: p.Epsilon, WeightDecay: p.WeightDecay}
	err = engine.Do(context.Background(), false, func(s *torch.Scope) error {
		for i, w := range weights {
			if squares[i].Elements == 0 {
				continue
			}
			var tensors []*torch.Tensor
			lists := []cuda.Tensor{w, grad[i], means[i], squares[i]}
			for _, t := range lists {
				tensors = append(tensors, s.FromFloat32s(sliceOf(t), int64(t.Elements)))
			}
			if p.Clip != 1 {
				tensors[1].MulScalarInPlace(p.Clip)
			}
			constants.Step(tensors[0], tensors[1], tensors[2], tensors[3], p.Rate, p.Step)
			for j, t := range lists {
				if j != 1 {
					copy(sliceOf(t), tensors[j].Float32s())
				}
			}
		}
		return nil
	})
	return errors.Join(err, engine.Close())
}

func (k processorKernels) ApplyLevels(results [][]codec.TensorResult, weights []cuda.Tensor, p localsteps.ApplyParams) error {
	for i, w := range slicesOf(weights) {
		if err := localsteps.Apply(k.kernel, k.layouts[i], ofTensor(results, i), w, p); err != nil {
			return err
		}
	}
	return nil
}

func (k processorKernels) Far(before, after, momenta []cuda.Tensor, factor float32) error {
	for i, w := range slicesOf(after) {
		var u []float32
		if momenta != nil {
			u = sliceOf(momenta[i])
		}
		localsteps.Far(sliceOf(before[i]), w, u, factor)
	}
	return nil
}

func (k processorKernels) Close() error { return nil }

// tested are kernels with faults.
type tested struct {
	kernels
	applied int    // calls of Apply
	wrong   string // name of the method whose results are wrong
	fail    string // name of the method that fails, after it has changed its tensors
	// failOnce is the name of the method that fails at its next call.
	failOnce string
	panics   string // name of the method that panics, as libtorch's operations do
	lacks    string // name of the method that lacks memory, before it changes anything
	closed   bool
}

var errTested = errors.New("injected")

// fault is called after a method of the kernels has returned err. It returns the error of the method.
func (m *tested) fault(method string, err error) error {
	if m.panics == method {
		panic(&torch.Error{Op: method, Message: "injected"})
	}
	if m.fail == method || m.failOnce == method {
		m.failOnce = ""
		return errTested
	}
	return err
}

// ruin makes a tensor undefined, as a failure of a device does.
func (m *tested) ruin(method string, tensors []cuda.Tensor) {
	if m.fail == method || m.panics == method {
		sliceOf(tensors[0])[0] = float32(math.NaN())
	}
}

func (m *tested) Squares(tensors []cuda.Tensor) ([][]float64, error) {
	if m.lacks == "Squares" {
		return nil, cuda.ErrMemory
	}
	squares, err := m.kernels.Squares(tensors)
	return squares, m.fault("Squares", err)
}

func (m *tested) Encode(delta, left, grad []cuda.Tensor, p distro.EncodeParams, least float32) ([]codec.TensorResult, error) {
	if m.lacks == "Encode" {
		return nil, cuda.ErrMemory
	}
	if m.wrong == "Encode" {
		p.Decay /= 2
	}
	taken, err := m.kernels.Encode(delta, left, grad, p, least)
	m.ruin("Encode", left)
	return taken, m.fault("Encode", err)
}

func (m *tested) EncodeLevels(delta, left, grad []cuda.Tensor, p localsteps.EncodeParams) ([]codec.TensorResult, error) {
	if m.lacks == "EncodeLevels" {
		return nil, cuda.ErrMemory
	}
	if m.wrong == "EncodeLevels" {
		p.Decay /= 2
	}
	taken, err := m.kernels.EncodeLevels(delta, left, grad, p)
	m.ruin("EncodeLevels", left)
	return taken, m.fault("EncodeLevels", err)
}

func (m *tested) Leaves(delta []cuda.Tensor, taken []codec.TensorResult) ([][32]byte, error) {
	if m.lacks == "Leaves" {
		return nil, cuda.ErrMemory
	}
	leaves, err := m.kernels.Leaves(delta, taken)
	if m.wrong == "Leaves" {
		leaves[len(leaves)-1][5] ^= 1
	}
	return leaves, m.fault("Leaves", err)
}

func (m *tested) AddBack(delta []cuda.Tensor, r []codec.TensorResult) error {
	if m.lacks == "AddBack" {
		return cuda.ErrMemory
	}
	err := m.kernels.AddBack(delta, r)
	m.ruin("AddBack", delta)
	return m.fault("AddBack", err)
}

func (m *tested) Apply(results [][]codec.TensorResult, weights []cuda.Tensor, p distro.ApplyParams) error {
	if m.lacks == "Apply" {
		return cuda.ErrMemory
	}
	m.applied++
	if m.wrong == "Apply" {
		p.LR *= 2
	}
	return m.fault("Apply", m.kernels.Apply(results, weights, p))
}

func (m *tested) ApplyLevels(results [][]codec.TensorResult, weights []cuda.Tensor, p localsteps.ApplyParams) error {
	if m.lacks == "ApplyLevels" {
		return cuda.ErrMemory
	}
	if m.wrong == "ApplyLevels" {
		p.Rate *= 2
	}
	return m.fault("ApplyLevels", m.kernels.ApplyLevels(results, weights, p))
}

func (m *tested) AdamW(weights, grad, means, squares []cuda.Tensor, p cuda.AdamWParams) error {
	if m.lacks == "AdamW" {
		return cuda.ErrMemory
	}
	err := m.kernels.AdamW(weights, grad, means, squares, p)
	m.ruin("AdamW", means)
	m.ruin("AdamW", weights)
	return m.fault("AdamW", err)
}

func (m *tested) Far(before, after, momenta []cuda.Tensor, factor float32) error {
	if m.lacks == "Far" {
		return cuda.ErrMemory
	}
	err := m.kernels.Far(before, after, momenta, factor)
	m.ruin("Far", after)
	return m.fault("Far", err)
}

func (m *tested) Close() error {
	m.closed = true
	return m.kernels.Close()
}

// withKernels gives each device of a trainer kernels. The returned list contains them in the order in
// which they are opened.
func withKernels(t *testing.T, change func(m *tested)) (func(o *Options), *[]*tested) {
	t.Helper()
	var all []*tested
	return func(o *Options) {
		o.kernels = func(layouts []distro.Layout, _ int) (kernels, error) {
			kernel, err := distro.NewKernel(distro.Options{})
			m := &tested{kernels: processorKernels{kernel, layouts}}
			if change != nil {
				change(m)
			}
			all = append(all, m)
			return m, err
		}
	}, &all
}
