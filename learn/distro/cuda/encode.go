package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// Encode is distro.Kernel.Encode for momenta and gradients in device memory, bit for bit. If it
// returns distro.ErrNotFinite, the chunks that are not finite are unchanged, and the error names
// the first of them. The other chunks have been updated. Chunks of 128×128 need a device with 74
// KiB of shared memory for each block.
func (d *Device) Encode(l distro.Layout, delta, grad Tensor, p distro.EncodeParams) (codec.TensorResult, error) {
	if err := distro.CheckEncode(l, delta.Elements, grad.Elements, p); err != nil {
		return codec.TensorResult{}, err
	}
	for _, err := range []error{delta.check("momenta"), grad.check("gradients")} {
		if err != nil {
			return codec.TensorResult{}, fmt.Errorf("encode: %w", err)
		}
	}
	result := l.Codec(p.TopK).NewResult()
	bad := []int64{math.MaxInt64}
	if err := d.within(func(m *machine) error { return d.encode(m, l, delta, grad, p, result, bad) }); err != nil {
		return codec.TensorResult{}, fmt.Errorf("encode: %w", err)
	}
	if bad[0] != math.MaxInt64 {
		return codec.TensorResult{}, fmt.Errorf("encode: chunk %d: momentum or gradient: %w", bad[0], distro.ErrNotFinite)
	}
	return result, nil
}

func (d *Device) encode(m *machine, l distro.Layout, delta, grad Tensor, p distro.EncodeParams, result codec.TensorResult, bad []int64) error {
	plan, err := d.plan(m, l)
	if err != nil {
		return err
	}
	// The staging memory holds the number of the bad chunk, then values, indices and counts.
	values := 8
	indices := values + 4*len(result.Values)
	counts := indices + aligned(2*len(result.Indices))
	if err := d.reserve(m, counts+2*len(result.Counts)); err != nil {
		return err
	}
	at := d.staging.at
	if err := m.write(at, bytesOf(bad)); err != nil {
		return err
	}
	rows, cols := l.ChunkShape()
	arguments := encodeArguments{
		plan: plan, delta: delta.Address, grad: grad.Address,
		values: at + DevicePointer(values), indices: at + DevicePointer(indices), counts: at + DevicePointer(counts),
		bad: at, k: int64(l.Codec(p.TopK).K), decay: p.Decay, rate: p.LR, floor: p.Floor,
	}
	if err := m.launch(kernelEncode, l.Chunks(), 4*rows*(cols|1), unsafe.Pointer(&arguments)); err != nil {
		return err
	}
	if err := m.read(bytesOf(bad), at); err != nil {
		return err
	}
	if err := m.read(bytesOf(result.Values), arguments.values); err != nil {
		return err
	}
	if err := m.read(bytesOf(result.Indices), arguments.indices); err != nil {
		return err
	}
	return m.read(bytesOf(result.Counts), arguments.counts)
}
