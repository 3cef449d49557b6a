package distro

import (
	"fmt"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
)

// Shape returns the tensor's shape for package audit.
func (l Layout) Shape(topK int) audit.Shape {
	return audit.Shape{Chunks: l.Chunks(), Rows: l.chunkRows, Cols: l.chunkCols, K: l.Codec(topK).K}
}

// Leaves returns, for each chunk of a tensor, the digest of its momentum and the leaf that commits
// to the momentum together with the coefficients that Encode removed. The bits depend neither on
// the number of threads nor on the instruction set.
func (k *Kernel) Leaves(l Layout, delta []float32, taken codec.TensorResult) (digests, leaves [][32]byte, err error) {
	if len(delta) != l.Elements() {
		return nil, nil, fmt.Errorf("leaves: %w: %d momenta for %d elements", ErrInput, len(delta), l.Elements())
	}
	if err := checkResult(l, taken); err != nil {
		return nil, nil, fmt.Errorf("leaves: %w", err)
	}
	chunks := l.Chunks()
	digests, leaves = make([][32]byte, chunks), make([][32]byte, chunks)
	k.share((chunks+piece-1)/piece, func(next func() (int, bool)) {
		buffer := make([]float32, l.ChunkSize())
		for i, ok := next(); ok; i, ok = next() {
			for c := i * piece; c < min((i+1)*piece, chunks); c++ {
				digests[c] = k.isa.digest(l.Chunk(delta, c, buffer))
				leaves[c] = audit.Leaf(digests[c], TakenOf(taken, c, chunks))
			}
		}
	})
	return digests, leaves, nil
}

// TakenOf returns the entries of one chunk of a result with a number of chunks.
func TakenOf(r codec.TensorResult, chunk, chunks int) audit.Taken {
	at := chunk * (len(r.Indices) / chunks)
	end := at + int(r.Counts[chunk])
	return audit.Taken{Indices: r.Indices[at:end], Values: r.Values[at:end]}
}
