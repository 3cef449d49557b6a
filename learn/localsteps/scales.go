package localsteps

import (
	"math"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// Scales contains the factors of Apply for the results of one tensor, for kernels outside this
// package. A level l of result i in a chunk with unit u adds Shares[i]·(Units[u]·l) to its
// coefficient. The weights move by −DCT⁻¹(the sum times Mean). All operations are in double precision,
// except that each coefficient is rounded to single precision before the inverse DCT.
type Scales struct {
	Shares []float64
	Units  [math.MaxUint8 + 1]float64
	Mean   float64
}

// ScalesOf returns the factors for results that Apply accepts.
func ScalesOf(l distro.Layout, results []codec.TensorResult, p ApplyParams) Scales {
	var s Scales
	s.Shares, s.Mean = factorsOf(results, p)
	reach := reachOf(l, p.Reach)
	for code := range s.Units {
		s.Units[code] = value(reach, uint8(code), 1)
	}
	return s
}
