package train

import (
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/localsteps"
	"github.com/psyche-go/psyche/learn/torch"
)

// kernels are the optimizers' kernels on a device, for all tensors that it was made for at once. Except for AdamW,
// they compute the same bits as distro.Kernel and package localsteps. A call returns when the device is
// done. cuda.Model implements them.
type kernels interface {
	Squares(tensors []cuda.Tensor) ([][]float64, error)
	Encode(delta, left, grad []cuda.Tensor, p distro.EncodeParams, least float32) ([]codec.TensorResult, error)
	EncodeLevels(delta, left, grad []cuda.Tensor, p localsteps.EncodeParams) ([]codec.TensorResult, error)
	Leaves(delta []cuda.Tensor, taken []codec.TensorResult) ([][32]byte, error)
	Chunk(tensor cuda.Tensor, i, chunk int) ([]float32, error)
	AddBack(delta []cuda.Tensor, r []codec.TensorResult) error
	Apply(results [][]codec.TensorResult, weights []cuda.Tensor, p distro.ApplyParams) error
	ApplyLevels(results [][]codec.TensorResult, weights []cuda.Tensor, p localsteps.ApplyParams) error
	AdamW(weights, grad, means, squares []cuda.Tensor, p cuda.AdamWParams) error
	Far(before, after, momenta []cuda.Tensor, factor float32) error
	Close() error
}

// addresses returns where tensors are in a device's memory. They must be contiguous and in f32. The
// address of nil is zero.
func addresses(tensors []*torch.Tensor) []cuda.Tensor {
	there := make([]cuda.Tensor, len(tensors))
	for i, t := range tensors {
		if t == nil {
			continue
		}
		there[i] = cuda.Tensor{Address: cuda.DevicePointer(t.Address()), Elements: int(t.Numel())}
	}
	return there
}
