package codec

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// maxChunkSize is the maximum number of elements of a chunk, because indices are uint16.
const maxChunkSize = 1 << 16

// errInvalid means that bytes or a result do not match the layouts or the format.
var errInvalid = errors.New("invalid result")

// TensorLayout is the layout of one tensor in a result.
type TensorLayout struct {
	// Chunks is the number of chunks, at least 1.
	Chunks int
	// ChunkSize is the number of coefficients of a chunk, 1 to maxChunkSize.
	ChunkSize int
	// K is the maximum number of entries of a chunk, 1 to ChunkSize and at most 65535.
	K int
}

// TensorResult contains a trainer's coefficients of one tensor. Chunk c has Counts[c] entries, at
// the positions from c·K of Indices and Values. The positions from c·K+Counts[c] to (c+1)·K are
// zero.
type TensorResult struct {
	// Counts has Chunks elements, each at most K.
	Counts []uint16
	// Indices has Chunks·K elements. The indices of a chunk ascend strictly.
	Indices []uint16
	// Values has Chunks·K elements, finite and not zero. After Decode of a quantized result they
	// are 1 and −1; Encode uses the sign. For EncodeLevels they are integer multiples of their
	// chunk's unit.
	Values []float32
	// Units has, in results of EncodeLevels, an element for each chunk: the code of the chunk's
	// unit, up to MaxUnit, or 0 for chunks without entries. In other results it is nil.
	Units []uint8
}

// NewResult returns an empty result.
func (l TensorLayout) NewResult() TensorResult {
	return TensorResult{
		Counts:  make([]uint16, l.Chunks),
		Indices: make([]uint16, l.Chunks*l.K),
		Values:  make([]float32, l.Chunks*l.K),
	}
}

// Validate reports the first problem of a layout.
func (l TensorLayout) Validate() error {
	if l.Chunks < 1 || l.ChunkSize < 1 || l.ChunkSize > maxChunkSize || l.K < 1 || l.K > min(l.ChunkSize, math.MaxUint16) ||
		l.Chunks > math.MaxInt32/l.K {
		return fmt.Errorf("%w: layout of %d chunks, %d of %d coefficients each", errInvalid, l.Chunks, l.K, l.ChunkSize)
	}
	return nil
}

// Check reports the first problem of a result of this layout without units.
func (l TensorLayout) Check(r TensorResult) error { return l.check(r, values) }

func (l TensorLayout) check(r TensorResult, f form) error {
	if err := l.Validate(); err != nil {
		return err
	}
	if err := l.checkUnits(r, f); err != nil {
		return err
	}
	if len(r.Counts) != l.Chunks || len(r.Indices) != l.Chunks*l.K || len(r.Values) != l.Chunks*l.K {
		return fmt.Errorf("%w: %d counts, %d indices, %d values for %d chunks of %d entries",
			errInvalid, len(r.Counts), len(r.Indices), len(r.Values), l.Chunks, l.K)
	}
	for c, count := range r.Counts {
		if int(count) > l.K {
			return fmt.Errorf("%w: chunk %d has %d entries, at most %d fit", errInvalid, c, count, l.K)
		}
		if err := l.checkChunk(r.Indices[c*l.K:][:l.K], r.Values[c*l.K:][:l.K], int(count)); err != nil {
			return fmt.Errorf("chunk %d: %w", c, err)
		}
		if err := f.check(r.Values[c*l.K:][:count]); err != nil {
			return fmt.Errorf("chunk %d: %w", c, err)
		}
	}
	return nil
}

func (l TensorLayout) checkChunk(indices []uint16, values []float32, count int) error {
	previous := -1
	for i, index := range indices[:count] {
		if int(index) <= previous || int(index) >= l.ChunkSize {
			return fmt.Errorf("%w: index %d after %d in a chunk of %d", errInvalid, index, previous, l.ChunkSize)
		}
		previous = int(index)
		if err := checkValue(values[i]); err != nil {
			return err
		}
	}
	for i := count; i < len(indices); i++ {
		if indices[i] != 0 || math.Float32bits(values[i]) != 0 {
			return fmt.Errorf("%w: place %d of %d entries is not empty", errInvalid, i, count)
		}
	}
	return nil
}

// checkValue refuses values that have no sign or cannot be averaged.
func checkValue(v float32) error {
	if magnitude := math.Float32bits(v) &^ (1 << 31); magnitude == 0 || magnitude > math.Float32bits(math.MaxFloat32) {
		return fmt.Errorf("%w: value %v", errInvalid, v)
	}
	return nil
}

// countBits returns the number of bits of a nonzero count, less 1.
func (l TensorLayout) countBits() int { return bits.Len(uint(l.K - 1)) }
func (l TensorLayout) indexBits() int { return bits.Len(uint(l.ChunkSize - 1)) }

// ranked reports whether the indices of a chunk are written as the rank of their set.
func (l TensorLayout) ranked() bool { return l.ChunkSize <= maxTable/l.K }

// setBits returns the number of bits for the indices of a chunk with the given count.
func (l TensorLayout) setBits(count int) int {
	if l.ranked() {
		return binomialTable(l.ChunkSize, l.K).widths[count]
	}
	return count * l.indexBits()
}

// fullSize returns the size in bytes of a tensor with K entries in every chunk. If the form has
// units, it returns the minimum size.
func (l TensorLayout) fullSize(f form) int {
	return bytesOf(1 + l.Chunks*(f.leastUnit()+l.setBits(l.K)+l.K*f.bits()))
}

// emptySize returns the size in bytes of a tensor without entries.
func (l TensorLayout) emptySize() int { return bytesOf(2 + l.Chunks) }

// maxSize returns the maximum size of a tensor in bytes. A chunk with fewer entries than K can take
// more bytes than a full chunk: there are more sets of 4 out of 8 elements than of 8 out of 8.
func (l TensorLayout) maxSize(f form) int {
	largest := 0
	for count := range l.K + 1 {
		largest = max(largest, l.setBits(count)+count*f.bits())
	}
	return bytesOf(2 + l.Chunks*(1+l.countBits()+f.mostUnit()+largest))
}

func bytesOf(bits int) int { return (bits + 7) / 8 }
