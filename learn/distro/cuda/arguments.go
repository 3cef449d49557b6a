package cuda

import (
	_ "embed"

	"github.com/psyche-go/psyche/learn/distro"
)

// source is the text of the kernels.
//
//go:embed kernel.cu
var source string

// threads is the number of threads in a block: THREADS of kernel.cu.
const threads = 64

// The structs below have the same layout as the structs of kernel.cu, byte for byte.

type axisArguments struct {
	n, lee      int32
	mean, scale float32
	basis       DevicePointer
	ld          int64
}

type planArguments struct {
	column, row            axisArguments
	secants                DevicePointer
	stride, blocks, chunks int64
}

type sentArguments struct {
	counts, indices, values DevicePointer
	places                  int64
}

type decodeArguments struct {
	plan    planArguments
	results DevicePointer
	count   int64
	tensor  DevicePointer
	rates   DevicePointer
	factor  float32
}

type encodeArguments struct {
	plan                    planArguments
	delta, grad             DevicePointer
	counts, indices, values DevicePointer
	bad                     DevicePointer
	k                       int64
	decay, rate, floor      float32
}

func planFor(p distro.Plan, column, row, secants DevicePointer) planArguments {
	return planArguments{
		column: axisFor(p.Column, column), row: axisFor(p.Row, row), secants: secants,
		stride: int64(p.Stride), blocks: int64(p.Blocks), chunks: int64(p.Chunks),
	}
}

func axisFor(a distro.Axis, basis DevicePointer) axisArguments {
	lee := int32(0)
	if a.Lee {
		lee = 1
	}
	return axisArguments{n: int32(a.N), lee: lee, mean: a.Mean, scale: a.Scale, basis: basis, ld: int64(a.Ld)}
}
