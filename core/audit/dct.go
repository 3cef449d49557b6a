package audit

import (
	"math"
	"slices"
	"sync"
)

// The transforms are in double precision, every product rounded before it is added: an audit
// compares with margins, it does not need the bits of package distro.

// bases[n] are the n basis vectors of the orthonormal DCT of n points, one after the other.
var bases = func() (all [MaxEdge + 1]func() []float64) {
	for n := 1; n <= MaxEdge; n++ {
		all[n] = sync.OnceValue(func() []float64 {
			basis := make([]float64, n*n)
			for k := range n {
				scale := math.Sqrt(2 / float64(n))
				if k == 0 {
					scale = math.Sqrt(1 / float64(n))
				}
				for i := range n {
					// The angle modulo a full turn, in integers, so that the cosine is of a small number.
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

// inverse returns the chunk whose DCT the coefficients are.
func inverse(x []float64, rows, cols int) []float64 {
	return transposed(transposed(x, rows, cols, bases[cols](), true), cols, rows, bases[rows](), true)
}

// transposed transforms every row of x, and returns the transpose of the outcome.
func transposed(x []float64, rows, cols int, basis []float64, back bool) []float64 {
	out := make([]float64, rows*cols)
	line, scratch := make([]float64, cols), make([]float64, cols)
	for r := range rows {
		row := x[r*cols:][:cols]
		if slices.IndexFunc(row, func(v float64) bool { return v != 0 }) < 0 {
			continue
		}
		switch {
		case cols&(cols-1) != 0:
			bySums(line, row, basis, back)
		case back:
			copy(line, row)
			normalise(line)
			fold(line, scratch, true)
		default:
			copy(line, row)
			fold(line, scratch, false)
			normalise(line)
		}
		for c, v := range line {
			out[c*rows+r] = v
		}
	}
	return out
}

func bySums(line, row, basis []float64, back bool) {
	n := len(row)
	clear(line)
	for k := range n {
		for i, b := range basis[k*n:][:n] {
			if back {
				line[i] += float64(row[k] * b)
			} else {
				line[k] += float64(row[i] * b)
			}
		}
	}
}

// normalise makes the transform of a power of two of points orthonormal.
func normalise(x []float64) {
	n := float64(len(x))
	x[0] *= math.Sqrt(1 / n)
	for k := 1; k < len(x); k++ {
		x[k] *= math.Sqrt(2 / n)
	}
}

// secants[n/2+i] = 1/(2·cos(π(i+½)/n)) for n = 2, 4, 8 … MaxEdge.
var secants = sync.OnceValue(func() []float64 {
	table := make([]float64, MaxEdge)
	for h := 1; h < MaxEdge; h *= 2 {
		for i := range h {
			table[h+i] = 0.5 / math.Cos(math.Pi*(float64(i)+0.5)/float64(2*h))
		}
	}
	return table
})

// fold is Lee's recursion for a power of two of points, without its factors: the even
// coefficients are those of the folded half, the odd ones sums of neighbours of the other.
func fold(x, t []float64, back bool) {
	n, h := len(x), len(x)/2
	if n == 1 {
		return
	}
	secant := secants()[h:n]
	if back {
		t[0], t[h] = x[0], x[1]
		for i := 1; i < h; i++ {
			t[i], t[h+i] = x[2*i], x[2*i-1]+x[2*i+1]
		}
		fold(t[:h], x[:h], true)
		fold(t[h:], x[h:], true)
		for i := range h {
			a, b := t[i], float64(t[h+i]*secant[i])
			x[i], x[n-1-i] = a+b, a-b
		}
		return
	}
	for i := range h {
		a, b := x[i], x[n-1-i]
		t[i], t[h+i] = a+b, float64((a-b)*secant[i])
	}
	fold(t[:h], x[:h], false)
	fold(t[h:], x[h:], false)
	for i := range h - 1 {
		x[2*i], x[2*i+1] = t[i], t[h+i]+t[h+i+1]
	}
	x[n-2], x[n-1] = t[h-1], t[n-1]
}

// dense returns all coefficients of a chunk.
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
