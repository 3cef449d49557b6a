package localsteps

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/codec"
)

// definition chooses units and levels as chooser does, without its shortcuts.
type definition struct {
	levels float64
	reach  float32
}

func (d definition) level(v float32, unit uint8) float64 {
	return min(math.Round(math.Abs(float64(v))/(float64(d.reach)*unitOf(unit))), d.levels)
}

func (d definition) unit(values []float32) (best uint8) {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(float64(v)))
	}
	first := codeOf(largest / float64(d.reach))
	minimum := math.Inf(1)
	for code := first; code <= min(first+unitsPerOctave*codec.MaxLevelBits, codec.MaxUnit); code++ {
		sum := 0.0
		for _, v := range values {
			rest := math.Abs(float64(v)) - d.level(v, uint8(code))*float64(d.reach)*unitOf(uint8(code))
			sum += rest * rest
		}
		if code == first || sum < minimum {
			best, minimum = uint8(code), sum
		}
	}
	return best
}

// TestChosenUnitsAndLevels compares chooser with its definition. Half of the values are multiples of
// half a unit, so that roundings and sums tie.
func TestChosenUnitsAndLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := definition{float64(int(1) << rapid.IntRange(0, codec.MaxLevelBits-1).Draw(t, "bits")), rapid.SampledFrom([]float32{1e-40, 3e-7, 1, 3, 1e30}).Draw(t, "reach")}
		c := chooser{levels: d.levels, reach: float64(d.reach)}
		code := uint8(rapid.IntRange(0, codec.MaxUnit).Draw(t, "code"))
		values := make([]float32, rapid.IntRange(1, 40).Draw(t, "count"))
		for i := range values {
			values[i] = float32(float64(d.reach) * unitOf(code) * float64(rapid.IntRange(1, 20).Draw(t, "halves")) / 2)
			if rapid.Bool().Draw(t, "any") {
				values[i] *= rapid.Float32Range(0.01, 1).Draw(t, "factor")
			}
			if rapid.Bool().Draw(t, "negative") {
				values[i] = -values[i]
			}
		}
		values = slices.DeleteFunc(values, func(v float32) bool { return v == 0 })
		unit := c.unit(values)
		if want := d.unit(values); unit != want {
			t.Fatalf("unit %d, want %d", unit, want)
		}
		for i, v := range values {
			if got, want := c.level(c.sizes[i], c.reach*unitOf(unit)), d.level(v, unit); got != want {
				t.Fatalf("level of %v is %v, want %v", v, got, want)
			}
		}
	})
}
