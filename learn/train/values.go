package train

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/torch"
)

// maxUpdate is the maximum L2 norm of a learning rate times a gradient. Under this limit, the
// momentum of 2^32 steps, and so every coefficient of its orthonormal transform, is far below the
// largest float32. So encoding cannot overflow halfway through a model.
const maxUpdate = 1e18

// norm returns the L2 norm of all slices together, in double precision so that it is finite exactly
// if every element is. It uses as many threads as libtorch.
func norm(slices [][]float32) float64 {
	threads := 1
	if info, err := torch.Loaded(); err == nil {
		threads = info.Threads
	}
	return distro.Norm(threads, slices)
}

// float32s returns the memory of tensors; nil for nil tensors.
func float32s(tensors []*torch.Tensor) [][]float32 {
	values := make([][]float32, len(tensors))
	for i, tensor := range tensors {
		if tensor != nil {
			values[i] = tensor.Float32s()
		}
	}
	return values
}

// copied returns the values of tensors of any device, in the memory of the CPU: their own memory if
// they are there. It must be called on the thread of their engine.
func copied(tensors []*torch.Tensor) [][]float32 {
	values := make([][]float32, len(tensors))
	for i, tensor := range tensors {
		if tensor.Device() == torch.CPU {
			values[i] = tensor.Float32s()
		} else {
			values[i] = tensor.CopyFloat32s()
		}
	}
	return values
}

// detached returns aliases of tensors that do not require gradients, on the thread of their engine.
func detached(tensors []*torch.Tensor) []*torch.Tensor {
	aliases := make([]*torch.Tensor, len(tensors))
	for i, tensor := range tensors {
		aliases[i] = tensor.Detach()
	}
	return aliases
}

// absolute returns the sum of the absolute values of a slice.
func absolute(values []float32) float64 {
	var sum float64
	for _, v := range values {
		sum += max(float64(v), -float64(v))
	}
	return sum
}

func addSlice(sum, values []float32) {
	for i, v := range values {
		sum[i] += v
	}
}

func clearAll(slices [][]float32) {
	for _, slice := range slices {
		clear(slice)
	}
}

func cloneAll(values [][]float32) [][]float32 {
	all := make([][]float32, len(values))
	for i, v := range values {
		all[i] = slices.Clone(v)
	}
	return all
}

func copyAll(to, from [][]float32) {
	for i, v := range from {
		copy(to[i], v)
	}
}

// distance returns the L2 norm of the difference.
func distance(a, b []float32) float64 {
	squares := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		squares += d * d
	}
	return math.Sqrt(squares)
}

// length returns the L2 norm.
func length(values []float64) float64 {
	squares := 0.0
	for _, v := range values {
		squares += v * v
	}
	return math.Sqrt(squares)
}

// widest returns the largest distance between two values, or infinity if one is not finite.
func widest(a, b []float32) float64 {
	far := 0.0
	for i := range a {
		distance := math.Abs(float64(a[i]) - float64(b[i]))
		if !(distance <= far) {
			far = distance
			if math.IsNaN(far) {
				return math.Inf(1)
			}
		}
	}
	return far
}

// ofTensor returns the parts of results for a tensor.
func ofTensor(results [][]codec.TensorResult, tensor int) []codec.TensorResult {
	of := make([]codec.TensorResult, len(results))
	for i, r := range results {
		of[i] = r[tensor]
	}
	return of
}
