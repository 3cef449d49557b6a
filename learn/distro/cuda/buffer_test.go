package cuda

import (
	"fmt"
	"runtime"

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
