package train

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCorrections checks that corrections restore the bits of weights that are near or far off,
// zeros of both signs, or NaNs.
func TestCorrections(t *testing.T) {
	bits := rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{0, 1, 1 << 31, 1<<31 | 1, 0x7f800000, 0xff800000, 0x7fc00001, math.Float32bits(0.02)}))
	rapid.Check(t, func(t *rapid.T) {
		var right, near []float32
		for _, b := range rapid.SliceOfN(bits, 1, 64).Draw(t, "weights") {
			off := rapid.OneOf(rapid.Uint32Range(0, 300), rapid.Uint32()).Draw(t, "off")
			right, near = append(right, math.Float32frombits(b)), append(near, math.Float32frombits(b+off-150))
		}
		got := slices.Clone(near)
		newCorrections(right, near).correct(got)
		for i := range right {
			if math.Float32bits(got[i]) != math.Float32bits(right[i]) {
				t.Fatalf("weight %d: %x, want %x", i, math.Float32bits(got[i]), math.Float32bits(right[i]))
			}
		}
	})
}
