package train

import (
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

// applier applies results to weights in device memory, with the same bits as the optimizer's kernel
// produces in CPU memory. A call returns when the device is done. cuda.Device implements it.
type applier interface {
	DecodeApply(l distro.Layout, results []codec.TensorResult, weights cuda.Tensor, p distro.ApplyParams) error
	Close() error
}

// openApplier opens the applier of a device. It returns nil for a copy on the CPU.
func openApplier(device torch.Device) (applier, error) {
	if device == torch.CPU {
		return nil, nil
	}
	there, err := cuda.Open(int(device))
	if err != nil {
		return nil, err
	}
	return there, nil
}
