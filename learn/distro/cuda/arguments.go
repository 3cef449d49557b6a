package cuda

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/learn/distro"
)

// The text of the kernels.
var (
	//go:embed kernel.cu
	kernelText string
	//go:embed decode.cu
	decodeText string
	//go:embed encode.cu
	encodeText string
	//go:embed measure.cu
	measureText string
	//go:embed digest.cu
	digestText string
	//go:embed local.cu
	localText string
)

// source returns the text that the compiler gets.
func source() string {
	var all strings.Builder
	for _, file := range []struct{ name, text string }{
		{"kernel.cu", kernelText}, {"decode.cu", decodeText}, {"encode.cu", encodeText},
		{"measure.cu", measureText}, {"digest.cu", digestText}, {"local.cu", localText},
	} {
		fmt.Fprintf(&all, "#line 1 \"%s\"\n%s", file.name, file.text)
	}
	return all.String()
}

// threads is the number of threads in a block: THREADS of kernel.cu.
const threads = 64

// The names of the kernels.
const (
	kernelApply   = "psyche_distro_apply"
	kernelAdd     = "psyche_distro_add"
	kernelEncode  = "psyche_distro_encode"
	kernelSquares = "psyche_distro_squares"
	kernelSamples = "psyche_distro_samples"
	kernelFloors  = "psyche_distro_floors"
	kernelDigest  = "psyche_distro_digest"
	kernelGather  = "psyche_distro_gather"
	kernelAdamW   = "psyche_local_adamw"
	kernelFar     = "psyche_local_far"
	kernelMean    = "psyche_local_mean"
	kernelLevels  = "psyche_local_quantize"
)

var kernelNames = []string{
	kernelApply, kernelAdd, kernelEncode, kernelSquares, kernelSamples, kernelFloors, kernelDigest, kernelGather,
	kernelAdamW, kernelFar, kernelMean, kernelLevels,
}

// The structs below have the same layout as the structs of the kernels, byte for byte.

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

type modelArguments struct {
	plans, firsts DevicePointer
	tensors       int64
}

type sentArguments struct {
	_            [4]DevicePointer // of counts, indices, values and units: see transfer.describe
	places, vote int32
}

type decodeArguments struct {
	model               modelArguments
	results             DevicePointer
	count               int64
	to                  DevicePointer
	rate, votes, factor float32
}

type encodeArguments struct {
	model                   modelArguments
	delta, grad, left       DevicePointer
	entries, floors         DevicePointer
	counts, indices, values DevicePointer
	bad                     DevicePointer
	k                       int64
	decay, rate             float32
}

type squareArguments struct {
	model         modelArguments
	tensors, sums DevicePointer
}

type sampleArguments struct {
	model             modelArguments
	delta, grad, sums DevicePointer
	decay, rate       float32
}

type floorArguments struct {
	model        modelArguments
	sums, floors DevicePointer
	least        float32
}

type digestArguments struct {
	model            modelArguments
	tensors, digests DevicePointer
}

type gatherArguments struct {
	model                    modelArguments
	tensors, numbers, starts DevicePointer
	count                    int64
	to                       DevicePointer
}

type stepArguments struct {
	model                         modelArguments
	weights, grad, means, squares DevicePointer
	clip                          float32
	beta1, rest1, beta2, rest2    float32
	root, epsilon, rate, keep     float32
}

type farArguments struct {
	model                  modelArguments
	before, after, momenta DevicePointer
	factor                 float32
}

type meanArguments struct {
	model                modelArguments
	results              DevicePointer
	count                int64
	shares, reach, means DevicePointer
	scale                float64
}

type quantizeArguments struct {
	model                   modelArguments
	entries                 DevicePointer
	counts, indices, values DevicePointer
	sentCounts, sentIndices DevicePointer
	levels, units           DevicePointer
	reach                   DevicePointer
	k                       int64
	most                    float64
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
