// Package distrotest provides common helpers for the tests of the DisTrO kernels on the CPU and on
// devices.
package distrotest

import (
	"math"

	"github.com/psyche-go/psyche/core/codec"
)

// Shapes are tensors that cover every path of a kernel: scalars, rows, matrices with sides that are
// and are not multiples of a chunk's, stacked experts, and few or many coefficients per chunk.
var Shapes = []struct {
	Shape []int64 // of the tensor
	Chunk int     // largest side of a chunk
	TopK  int     // coefficients per chunk
}{
	{[]int64{}, 64, 8},
	{[]int64{1}, 64, 8},
	{[]int64{2}, 64, 1},
	{[]int64{768}, 64, 8},
	{[]int64{100}, 64, 8},
	{[]int64{67}, 64, 3},
	{[]int64{512}, 128, 100}, // a row of two strips
	{[]int64{64, 64}, 64, 8},
	{[]int64{192, 256}, 64, 2},
	{[]int64{128, 192}, 64, 40},
	{[]int64{128, 128}, 64, 500},
	{[]int64{64, 128}, 64, 4096},
	{[]int64{100, 96}, 64, 8},      // 50 × 48
	{[]int64{58, 88}, 32, 8},       // 29 × 22
	{[]int64{29, 44}, 64, 70},      // 29 × 44
	{[]int64{131, 64}, 64, 8},      // 1 × 64
	{[]int64{64, 131}, 64, 8},      // 64 × 1
	{[]int64{16, 15}, 64, 8},       //
	{[]int64{3, 2, 48, 20}, 16, 5}, // stacked
	{[]int64{2, 7, 9}, 8, 100},
	{[]int64{256, 384}, 128, 8}, // four bands, strips of 32
	{[]int64{127, 100}, 128, 65},
	{[]int64{128, 256}, 128, 5000},
	{[]int64{16, 16 * 140}, 16, 4}, // more chunks than a device has blocks
	{[]int64{64, 64 * 140}, 64, 4}, // more than one range per thread
}

// ToSigns replaces each value by its sign, as in a 1-bit result.
func ToSigns(r codec.TensorResult) {
	for i, v := range r.Values {
		if v != 0 {
			r.Values[i] = float32(math.Copysign(1, float64(v)))
		}
	}
}
