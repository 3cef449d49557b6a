package distro

import (
	"fmt"

	"github.com/psyche-go/psyche/core/codec"
)

// Plan contains the data of a layout for kernels outside this package: the positions of its chunks
// and the constants of its transforms. It is read-only.
type Plan struct {
	// Column is the transform along a column of a chunk, over its rows, and Row the transform along
	// a row.
	Column, Row Axis
	// Secants are the secants of Lee's recursion: the element n/2+i is 1/(2·cos(π(i+½)/n)) for n = 2,
	// 4, 8 … MaxChunk.
	Secants []float32
	// Stride is the number of elements from one row of the tensor to the next. Blocks is the number of
	// chunks in a row of chunks, and Chunks the number of all chunks. Chunk c starts at the element
	// c/Blocks·Column.N·Stride + c%Blocks·Row.N.
	Stride, Blocks, Chunks int
}

// Axis is the orthonormal DCT of N points.
type Axis struct {
	N int
	// Lee means that N is a power of two, so Lee's recursion replaces the basis.
	Lee bool
	// Mean and Scale are the factors of coefficient 0 and of the other coefficients.
	Mean, Scale float32
	// Basis has N rows, Ld floats apart. The first N floats of each row are used.
	Basis []float32
	Ld    int
}

// Plan returns the plan of a layout.
func (l Layout) Plan() Plan {
	return Plan{
		Column:  planAxis(l.chunkRows),
		Row:     planAxis(l.chunkCols),
		Secants: secants(),
		Stride:  l.cols,
		Blocks:  l.colBlocks(),
		Chunks:  l.Chunks(),
	}
}

func planAxis(n int) Axis {
	t := cosineTables[n]()
	return Axis{N: n, Lee: t.fast, Mean: t.mean, Scale: t.scale, Basis: t.basis, Ld: padded(n)}
}

// CheckApply returns ErrInput if the arguments of a DecodeApply are invalid for a tensor with a
// number of weights.
func CheckApply(l Layout, results []codec.TensorResult, weights int, p ApplyParams) error {
	switch {
	case weights != l.Elements():
		return fmt.Errorf("decode: %w: %d weights for %d elements", ErrInput, weights, l.Elements())
	case !(p.LR >= 0) || !(p.WeightFactor > 0) || !(p.WeightFactor <= 1) || !allFinite([]float32{p.LR}):
		return fmt.Errorf("decode: %w: learning rate %v, weight factor %v: want ≥ 0, and above 0 up to 1", ErrInput, p.LR, p.WeightFactor)
	}
	if err := p.Votes.Check(len(results)); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	for i, r := range results {
		if err := checkResult(l, r); err != nil {
			return fmt.Errorf("decode: result %d: %w", i, err)
		}
	}
	return nil
}

// CheckAddBack returns ErrInput if the arguments of an AddBack are invalid for a number of momenta.
func CheckAddBack(l Layout, momenta int, r codec.TensorResult) error {
	if momenta != l.Elements() {
		return fmt.Errorf("add back: %w: %d momenta for %d elements", ErrInput, momenta, l.Elements())
	}
	if err := checkResult(l, r); err != nil {
		return fmt.Errorf("add back: %w", err)
	}
	return nil
}

// CheckEncode returns ErrInput or ErrNotFinite if the arguments of an Encode are invalid for
// numbers of momenta and gradients.
func CheckEncode(l Layout, momenta, gradients int, p EncodeParams) error {
	switch {
	case momenta != l.Elements() || gradients != l.Elements():
		return fmt.Errorf("encode: %w: %d momenta and %d gradients for %d elements", ErrInput, momenta, gradients, l.Elements())
	case p.TopK < 1:
		return fmt.Errorf("encode: %w: top-k %d, want at least 1", ErrInput, p.TopK)
	case !allFinite([]float32{p.Decay, p.LR, p.Floor}):
		return fmt.Errorf("encode: decay %v, learning rate %v, floor %v: %w", p.Decay, p.LR, p.Floor, ErrNotFinite)
	}
	return nil
}
