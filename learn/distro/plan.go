package distro

import (
	"fmt"

	"github.com/psyche-go/psyche/core/codec"
)

// Plan is what a kernel outside this package needs to know of a layout: where its chunks
// lie and the constants of its transforms. It is to be read only.
type Plan struct {
	// Column is the transform along a column of a chunk, over its rows; Row the one along a
	// row.
	Column, Row Axis
	// Secants are those of Lee's recursion: the element n/2+i is 1/(2·cos(π(i+½)/n)) for
	// n = 2, 4, 8 … MaxChunk.
	Secants []float32
	// Stride is the number of elements from a row of the tensor to the next, Blocks that of
	// the chunks side by side and Chunks that of all. Chunk c begins at the element
	// c/Blocks·Column.N·Stride + c%Blocks·Row.N.
	Stride, Blocks, Chunks int
}

// Axis is the orthonormal DCT of N points.
type Axis struct {
	N int
	// Lee says that N is a power of two and Lee's recursion is used, else the basis.
	Lee bool
	// Mean and Scale are the factors of coefficient 0 and of the others.
	Mean, Scale float32
	// Basis has N rows, Ld floats apart, of which the first N count.
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

// CheckApply reports what is wrong with the arguments of a DecodeApply for a tensor of so
// many weights: ErrInput.
func CheckApply(l Layout, results []codec.TensorResult, weights int, p ApplyParams) error {
	switch {
	case weights != l.Elements():
		return fmt.Errorf("decode: %w: %d weights for %d elements", ErrInput, weights, l.Elements())
	case !(p.LR >= 0) || !(p.WeightFactor > 0) || !(p.WeightFactor <= 1) || !allFinite([]float32{p.LR}):
		return fmt.Errorf("decode: %w: learning rate %v, weight factor %v: want ≥ 0, and above 0 up to 1", ErrInput, p.LR, p.WeightFactor)
	}
	for i, r := range results {
		if err := checkResult(l, r); err != nil {
			return fmt.Errorf("decode: result %d: %w", i, err)
		}
	}
	return nil
}

// CheckAddBack reports what is wrong with the arguments of an AddBack to so many momenta:
// ErrInput.
func CheckAddBack(l Layout, momenta int, r codec.TensorResult) error {
	if momenta != l.Elements() {
		return fmt.Errorf("add back: %w: %d momenta for %d elements", ErrInput, momenta, l.Elements())
	}
	if err := checkResult(l, r); err != nil {
		return fmt.Errorf("add back: %w", err)
	}
	return nil
}

// CheckEncode reports what is wrong with the arguments of an Encode of so many momenta and
// gradients: ErrInput or ErrNotFinite.
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
