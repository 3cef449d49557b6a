package distro

import (
	"math"
	"slices"
)

// reference is the kernel in Go. It is slow, and it defines the correct results.
type reference struct {
	layout        Layout
	rowDCT        *cosineTable // for chunkCols points, along a row
	columnDCT     *cosineTable // for chunkRows points, along a column
	chunk, coeffs []float32    // chunkRows × chunkCols
	line, scratch []float32
	order         []uint64
}

func newReference(l Layout) chunkKernel {
	return &reference{
		layout:    l,
		rowDCT:    cosineTables[l.chunkCols](),
		columnDCT: cosineTables[l.chunkRows](),
		chunk:     make([]float32, l.ChunkSize()),
		coeffs:    make([]float32, l.ChunkSize()),
		line:      make([]float32, MaxChunk),
		scratch:   make([]float32, MaxChunk),
		order:     make([]uint64, l.ChunkSize()),
	}
}

func (r *reference) encode(first, last int, delta, left, grad []float32, p EncodeParams, k int, out slots) int {
	for c := first; c < last; c++ {
		if !r.momentum(c, delta, grad, p) {
			return c
		}
		indices, values := out.indices[c*k:][:k], out.values[c*k:][:k]
		count := r.top(indices, values, p.Floor)
		out.counts[c] = uint16(count)
		r.invert(indices[:count], values[:count])
		r.eachRow(c, func(at, row int) {
			for j := range r.layout.chunkCols {
				left[at+j] = r.chunk[row+j] - r.coeffs[row+j]
			}
		})
	}
	return -1
}

// momentum writes decay·δ + lr·g of a chunk, flushed, to r.chunk, and its DCT to r.coeffs, columns
// first. It reports whether all coefficients are finite. If any value is not finite, some
// coefficient is not finite.
func (r *reference) momentum(c int, delta, grad []float32, p EncodeParams) bool {
	rows, cols := r.layout.ChunkShape()
	r.eachRow(c, func(at, row int) {
		for j := range cols {
			r.chunk[row+j] = flush(float32(p.Decay*delta[at+j]) + float32(p.LR*grad[at+j]))
		}
	})
	copy(r.coeffs, r.chunk)
	for j := range cols {
		r.column(j, (*cosineTable).forward)
	}
	for i := range rows {
		r.rowDCT.forward(r.coeffs[i*cols:][:cols], r.scratch)
	}
	return allFinite(r.coeffs)
}

// least is 2⁻¹⁰⁰. Momentum below it becomes zero. So the remainder of an old gradient ends before
// float32 rounding changes it noticeably, and it is not sent as if it carried information.
const least = 0x1p-100

// flush returns zero for a value that is too small for a momentum. A NaN stays.
func flush(x float32) float32 {
	if magnitude(x) < math.Float32bits(least) {
		return 0
	}
	return x
}

// top selects the largest coefficients by magnitude, among equal ones the lowest index, and never
// zeros. If all are below the floor, it selects none. It writes them in ascending order of index
// and returns their number.
func (r *reference) top(indices []uint16, values []float32, floor float32) int {
	order := r.order[:0]
	for i, v := range r.coeffs {
		if v != 0 {
			order = append(order, uint64(^magnitude(v))<<16|uint64(i))
		}
	}
	slices.Sort(order)
	if len(order) == 0 || magnitude(r.coeffs[uint16(order[0])]) < magnitude(floor) {
		return 0
	}
	order = order[:min(len(order), len(indices))]
	for i, key := range order {
		indices[i] = uint16(key)
	}
	slices.Sort(indices[:len(order)])
	for i, index := range indices[:len(order)] {
		values[i] = r.coeffs[index]
	}
	return len(order)
}

// magnitude is a sort key for finite numbers by absolute value.
func magnitude(v float32) uint32 { return math.Float32bits(v) &^ (1 << 31) }

// invert writes the inverse DCT of a chunk's coefficients to r.coeffs. Along the rows it adds one
// basis row after the other in ascending order of index. Then it transforms along the columns.
func (r *reference) invert(indices []uint16, values []float32) {
	cols := r.layout.chunkCols
	clear(r.coeffs)
	for i, index := range indices {
		row := r.coeffs[int(index)/cols*cols:][:cols]
		basis := r.rowDCT.basis[int(index)%cols*padded(cols):][:cols]
		for j := range row {
			row[j] += float32(values[i] * basis[j])
		}
	}
	for j := range cols {
		r.column(j, (*cosineTable).inverse)
	}
}

func (r *reference) apply(first, last int, in entries, weights []float32, p ApplyParams) {
	for c := first; c < last; c++ {
		from, to := in.offsets[c-first], in.offsets[c-first+1]
		r.invert(in.indices[from:to], in.values[from:to])
		r.eachRow(c, func(at, row int) {
			for j := range r.layout.chunkCols {
				weights[at+j] = descend(weights[at+j], r.coeffs[row+j], in.rates[c-first], p.WeightFactor)
			}
		})
	}
}

// descend moves a weight by the rate of its chunk against the sign of u, after its decay.
func descend(w, u, rate, factor float32) float32 {
	if factor != 1 {
		w = float32(w * factor)
	}
	step := float32(0)
	if u > 0 {
		step = rate
	} else if u < 0 {
		step = -rate
	}
	return w - step
}

func (r *reference) add(first, last int, in entries, delta []float32) {
	for c := first; c < last; c++ {
		from, to := in.offsets[c-first], in.offsets[c-first+1]
		r.invert(in.indices[from:to], in.values[from:to])
		r.eachRow(c, func(at, row int) {
			for j := range r.layout.chunkCols {
				delta[at+j] += r.coeffs[row+j]
			}
		})
	}
}

// column transforms column j of r.coeffs.
func (r *reference) column(j int, transform func(t *cosineTable, x, scratch []float32)) {
	rows, cols := r.layout.ChunkShape()
	for i := range rows {
		r.line[i] = r.coeffs[i*cols+j]
	}
	transform(r.columnDCT, r.line, r.scratch)
	for i := range rows {
		r.coeffs[i*cols+j] = r.line[i]
	}
}

// eachRow calls f with the start of each row of chunk c in the tensor and in the chunk.
func (r *reference) eachRow(c int, f func(at, row int)) {
	at := r.layout.offset(c)
	for i := range r.layout.chunkRows {
		f(at+i*r.layout.cols, i*r.layout.chunkCols)
	}
}

func allFinite(x []float32) bool {
	for _, v := range x {
		if magnitude(v) > math.Float32bits(math.MaxFloat32) {
			return false
		}
	}
	return true
}
