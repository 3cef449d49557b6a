package distro

import (
	"math"
	"math/bits"
	"sync"
)

//go:generate sh -c "go run ./gentables > tables_gen.go"

// padding is the number of floats in the widest vector of any kernel. The number of columns of a
// scratch row is rounded up to a multiple of it.
const padding = 16

func padded(n int) int { return (n + padding - 1) &^ (padding - 1) }

// cosineTable contains the constants of the orthonormal DCT of n points.
type cosineTable struct {
	n int
	// basis[k·padded(n) + i] = c(k)·cos(π(2i+1)k/2n), where c(0) = √(1/n) and c(k) = √(2/n) for k > 0.
	// The columns from n on are zero.
	basis []float32
	// mean and scale are c(0) and c(k>0).
	mean, scale float32
	// fast means that n is a power of two, so that Lee's recursion applies.
	fast bool
}

// secants[n/2+i] = 1/(2·cos(π(i+½)/n)) for n = 2, 4, 8…
var secants = sync.OnceValue(func() []float32 {
	table := make([]float32, len(secantBits))
	for i, b := range secantBits {
		table[i] = math.Float32frombits(b)
	}
	return table
})

var cosineTables = func() (tables [MaxChunk + 1]func() *cosineTable) {
	for n := 1; n <= MaxChunk; n++ {
		tables[n] = sync.OnceValue(func() *cosineTable { return newCosineTable(n) })
	}
	return tables
}()

// newCosineTable expands the quarter wave of n points by the symmetries of the cosine, which change
// only signs.
func newCosineTable(n int) *cosineTable {
	wave := waveBits[(n-1)*(n+2)/2:][:n+1]
	t := &cosineTable{
		n:     n,
		basis: make([]float32, n*padded(n)),
		mean:  math.Float32frombits(meanBits[n-1]),
		scale: math.Float32frombits(wave[0]),
		fast:  bits.OnesCount(uint(n)) == 1,
	}
	for i := range n {
		t.basis[i] = t.mean
	}
	for k := 1; k < n; k++ {
		for i := range n {
			phase := (2*i + 1) * k % (4 * n)
			if phase > 2*n {
				phase = 4*n - phase
			}
			value := math.Float32frombits(wave[min(phase, 2*n-phase)])
			if phase > n {
				value = -value
			}
			t.basis[k*padded(n)+i] = value
		}
	}
	return t
}
