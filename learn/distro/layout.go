package distro

import (
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
)

// MaxChunk is the largest chunk side that the tables cover. The indices of a chunk of this size
// still fit into the uint16 indices of a result.
const MaxChunk = 128

// maxElements bounds a tensor so that offsets and byte sizes fit into an int on every platform.
const maxElements = math.MaxInt32 * 8

// errShape means that a tensor shape or a chunk size is not supported.
var errShape = errors.New("invalid tensor shape")

// Layout describes how a tensor is cut into chunks. Leading dimensions are stacked: the tensor is a
// matrix of rows×cols whose last two dimensions are cut into blocks. A vector or a scalar is a
// matrix of one row. Chunks are numbered row-major over the blocks, and a coefficient of a chunk by
// verticalFrequency·chunkCols + horizontalFrequency.
type Layout struct {
	rows, cols           int
	chunkRows, chunkCols int
}

// NewLayout returns the layout of a tensor of the given shape. The chunk side along a dimension of
// size n is n itself if n ≤ chunk, else the largest divisor of n that is ≤ chunk.
func NewLayout(shape []int64, chunk int) (Layout, error) {
	if chunk < 1 || chunk > MaxChunk {
		return Layout{}, fmt.Errorf("compression_chunk %d: %w: want 1 to %d", chunk, errShape, MaxChunk)
	}
	cut, err := audit.Cut(shape, chunk, 1)
	if err != nil {
		return Layout{}, fmt.Errorf("shape %v: %w: every dimension must be at least 1, and all together at most %d elements", shape, errShape, int64(maxElements))
	}
	cols := 1
	if len(shape) > 0 {
		cols = int(shape[len(shape)-1])
	}
	elements := cut.Chunks * cut.Rows * cut.Cols
	if elements > maxElements {
		return Layout{}, fmt.Errorf("shape %v: %w: more than %d elements", shape, errShape, int64(maxElements))
	}
	return Layout{rows: elements / cols, cols: cols, chunkRows: cut.Rows, chunkCols: cut.Cols}, nil
}

// Elements returns the number of elements of the tensor.
func (l Layout) Elements() int { return l.rows * l.cols }

// ChunkShape returns the numbers of rows and columns of a chunk.
func (l Layout) ChunkShape() (rows, cols int) { return l.chunkRows, l.chunkCols }

// ChunkSize returns the number of elements of a chunk.
func (l Layout) ChunkSize() int { return l.chunkRows * l.chunkCols }

// Chunks returns the number of chunks.
func (l Layout) Chunks() int { return (l.rows / l.chunkRows) * l.colBlocks() }

// Codec returns the tensor's layout for package codec. At most topK ≥ 1 entries of a chunk are
// sent, and at most as many as it has.
func (l Layout) Codec(topK int) codec.TensorLayout {
	return codec.TensorLayout{Chunks: l.Chunks(), ChunkSize: l.ChunkSize(), K: min(max(topK, 1), l.ChunkSize())}
}

func (l Layout) colBlocks() int { return l.cols / l.chunkCols }

// Chunk copies a chunk of a tensor's values into to, row by row, and returns it. If to is too
// short, Chunk allocates a new slice.
func (l Layout) Chunk(values []float32, chunk int, to []float32) []float32 {
	if cap(to) < l.ChunkSize() {
		to = make([]float32, l.ChunkSize())
	}
	to = to[:l.ChunkSize()]
	from := l.offset(chunk)
	for r := range l.chunkRows {
		copy(to[r*l.chunkCols:][:l.chunkCols], values[from+r*l.cols:])
	}
	return to
}

// offset returns the index of the first element of a chunk.
func (l Layout) offset(chunk int) int {
	blocks := l.colBlocks()
	return (chunk/blocks)*l.chunkRows*l.cols + (chunk%blocks)*l.chunkCols
}
