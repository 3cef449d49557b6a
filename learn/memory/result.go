package memory

import (
	"math/bits"

	"github.com/psyche-go/psyche/core/codec"
)

// result returns the approximate size of a result of DisTrO in bytes, and 0 for another optimizer. A result contains
// coefficients of whole chunks, each as an index and a value or a sign. It is slightly larger if the chunk size does
// not divide the sides of a tensor.
func (t Training) result() uint64 {
	d := t.Optimizer.Distro
	if d == nil || d.CompressionChunk == 0 {
		return 0
	}
	chunk := uint64(d.CompressionChunk) * uint64(d.CompressionChunk)
	value := uint64(8 * Value)
	if d.Quantize1Bit {
		value = 1
	}
	chunks := t.Model.Parameters/chunk + min(t.Model.Parameters%chunk, 1)
	coefficients := times(chunks, min(uint64(d.CompressionTopK), chunk))
	return plus(codec.HeaderSize, plus(times(coefficients, uint64(bits.Len64(chunk-1))+value), 7)/8)
}
