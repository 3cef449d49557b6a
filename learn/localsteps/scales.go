package localsteps

import (
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// Scales contains the factors of Apply for the results of one tensor, for kernels outside this
// package. A level l of result i in a chunk with unit u adds Shares[i]·((Reach·unitOf(u))·l) to its
// coefficient. The weights move by −DCT⁻¹(the sum times Mean). All operations are in double precision,
// except that each coefficient is rounded to single precision before the inverse DCT.
type Scales struct {
	Shares []float64
	Reach  float64
	Mean   float64
}

// ScalesOf returns the factors for results that Apply accepts.
func ScalesOf(l distro.Layout, results []codec.TensorResult, p ApplyParams) Scales {
	shares, mean := factorsOf(results, p)
	return Scales{Shares: shares, Reach: float64(reachOf(l, p.Reach)), Mean: mean}
}
