package cuda

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// deviceBuffer is a tensor with its own device memory, for tests without a library that manages
// tensors. Close frees it.
type deviceBuffer struct {
	device *Device
	tensor Tensor
}

// newBuffer returns a buffer with a copy of at least one value.
func (d *Device) newBuffer(values []float32) (*deviceBuffer, error) {
	if len(values) == 0 {
		return nil, fmt.Errorf("device buffer: %w: no elements", distro.ErrInput)
	}
	b := &deviceBuffer{device: d}
	err := d.within(func(m *machine) error {
		at, err := store(m, values)
		b.tensor = Tensor{Address: at, Elements: len(values)}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("device buffer: %w", err)
	}
	return b, nil
}

// Tensor returns the buffer's tensor.
func (b *deviceBuffer) Tensor() Tensor { return b.tensor }

// Values returns a copy of the buffer's values.
func (b *deviceBuffer) Values() ([]float32, error) {
	if b.tensor.Address == 0 {
		return nil, fmt.Errorf("device buffer: %w", errClosed)
	}
	values := make([]float32, b.tensor.Elements)
	err := b.device.within(func(m *machine) error { return m.read(bytesOf(values), b.tensor.Address) })
	runtime.KeepAlive(values)
	if err != nil {
		return nil, fmt.Errorf("device buffer: %w", err)
	}
	return values, nil
}

// Close frees the memory. It returns an error if the device was closed before.
func (b *deviceBuffer) Close() error {
	if b.tensor.Address == 0 {
		return nil
	}
	err := b.device.within(func(m *machine) error { return m.free(b.tensor.Address) })
	b.tensor = Tensor{}
	return err
}

// single is a model of one tensor.
func (d *Device) single(l distro.Layout, topK int, f func(*Model) error) error {
	m, err := d.NewModel([]distro.Layout{l}, topK)
	if err != nil {
		return err
	}
	return errors.Join(f(m), m.Close())
}

// encode encodes a tensor in place, with p.Floor as the least floor.
func (d *Device) encode(l distro.Layout, delta, grad Tensor, p distro.EncodeParams) (r codec.TensorResult, err error) {
	return r, d.single(l, p.TopK, func(m *Model) error {
		results, err := m.Encode([]Tensor{delta}, []Tensor{delta}, []Tensor{grad}, p, p.Floor)
		if err == nil {
			r = results[0]
		}
		return err
	})
}

func (d *Device) addBack(l distro.Layout, delta Tensor, r codec.TensorResult) error {
	return d.single(l, 1, func(m *Model) error { return m.AddBack([]Tensor{delta}, []codec.TensorResult{r}) })
}

// apply applies results to a tensor.
func (d *Device) apply(l distro.Layout, results []codec.TensorResult, weights Tensor, p distro.ApplyParams) error {
	return d.single(l, 1, func(m *Model) error { return m.Apply(ofModel(results), []Tensor{weights}, p) })
}

// addMeans adds the inverse transform of the means of results with votes.
func (d *Device) addMeans(l distro.Layout, delta Tensor, results []codec.TensorResult, votes distro.Votes) error {
	return d.single(l, 1, func(m *Model) error {
		return m.decode(kernelAdd, ofModel(results), []Tensor{delta}, distro.ApplyParams{Votes: votes})
	})
}

// ofModel returns results of one tensor as results of a model.
func ofModel(results []codec.TensorResult) (list [][]codec.TensorResult) {
	for i := range results {
		list = append(list, results[i:i+1])
	}
	return list
}
