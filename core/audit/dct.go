package audit

import (
	"math"
	"sync"
)

// The transforms use double precision, and round every product before adding it. An audit compares
// with tolerances, so the results need not be bit-identical to the results of package distro.

// bases[n] are the n basis vectors of the orthonormal DCT of n points, one after the other.
var bases = func() (all [maxEdge + 1]func() []float64) {
	for n := 1; n <= maxEdge; n++ {
		all[n] = sync.OnceValue(func() []float64 {
			basis := make([]float64, n*n)
			for k := range n {
				scale := math.Sqrt(2 / float64(n))
				if k == 0 {
					scale = math.Sqrt(1 / float64(n))
				}
				for i := range n {
					// The angle modulo a full turn, in integers, so that the argument of the cosine
					// is small.
					quarter := (2*i + 1) * k % (4 * n)
					basis[k*n+i] = float64(scale * math.Cos(math.Pi*float64(quarter)/float64(2*n)))
				}
			}
			return basis
		})
	}
	return all
}()

// forward returns the DCT of a chunk.
func forward(x []float64, rows, cols int) []float64 {
	return transposed(transposed(x, rows, cols, bases[cols](), false), cols, rows, bases[rows](), false)
}

// inverse returns the chunk with the given DCT coefficients.
func inverse(x []float64, rows, cols int) []float64 {
	return transposed(transposed(x, rows, cols, bases[cols](), true), cols, rows, bases[rows](), true)
}

// transposed transforms every row of x, with the inverse transform if back is set, and returns the
// transpose of the result.
func transposed(x []float64, rows, cols int, basis []float64, back bool) []float64 {
	out := make([]float64, rows*cols)
	line := make([]float64, cols)
	for r := range rows {
		row := x[r*cols:][:cols]
		clear(line)
		for k := range line {
			if vector := basis[k*cols:][:cols]; !back {
				line[k] = dot(row, vector)
			} else if row[k] != 0 {
				for i, b := range vector {
					line[i] += float64(row[k] * b)
				}
			}
		}
		for c, v := range line {
			out[c*rows+r] = v
		}
	}
	return out
}

// dense returns the coefficients of a chunk as a full array.
func (t Taken) dense(size int) []float64 {
	all := make([]float64, size)
	for i, index := range t.Indices {
		all[index] = float64(t.Values[i])
	}
	return all
}

func length(x []float64) float64 { return math.Sqrt(dot(x, x)) }

func dot(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += float64(v * y[i])
	}
	return sum
}
