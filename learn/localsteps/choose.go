package localsteps

import (
	"math"

	"github.com/psyche-go/psyche/core/codec"
)

// chooser chooses the units and levels of a chunk. The choice is local to the sender, so its bits
// need not be the same elsewhere.
type chooser struct {
	levels float64 // the largest level
	reach  float32
}

// quantize writes the sent levels of a chunk's coefficients, count entries from at on, and replaces
// the coefficients by the part that is not sent.
func (c *chooser) quantize(coefficients, sent codec.TensorResult, chunk, at, count int) {
	values := coefficients.Values[at : at+count]
	unit := c.unit(values)
	to, left := at, at
	for i, v := range values {
		index, rest := coefficients.Indices[at+i], v
		if level := float32(math.Copysign(c.level(v, unit), float64(v))); level != 0 {
			sent.Indices[to], sent.Values[to] = index, level
			to++
			rest = float32(float64(v) - value(c.reach, unit, level))
		}
		if rest != 0 {
			coefficients.Indices[left], coefficients.Values[left] = index, rest
			left++
		}
	}
	clear(coefficients.Indices[left : at+count])
	clear(coefficients.Values[left : at+count])
	coefficients.Counts[chunk], sent.Counts[chunk] = uint16(left-at), uint16(to-at)
	if to > at {
		sent.Units[chunk] = unit
	}
}

// level returns the level that is nearest to a value, up to the largest; 0: the value is nearer to
// zero.
func (c *chooser) level(v float32, unit uint8) float64 {
	return min(math.Round(math.Abs(float64(v))/(float64(c.reach)*unitOf(unit))), c.levels)
}

// unit returns the unit with the smallest sum of squared errors for the values.
func (c *chooser) unit(values []float32) uint8 {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(float64(v)))
	}
	first := codeOf(largest / float64(c.reach))                         // with this unit, the largest value has level 1
	last := min(first+unitsPerOctave*codec.MaxLevelBits, codec.MaxUnit) // with this unit, it exceeds all levels
	best, least := uint8(first), math.Inf(1)
	for code := first; code <= last; code++ {
		left := 0.0
		for _, v := range values {
			rest := math.Abs(float64(v)) - c.level(v, uint8(code))*float64(c.reach)*unitOf(uint8(code))
			left += rest * rest
		}
		if left < least {
			best, least = uint8(code), left
		}
	}
	return best
}

// codeOf returns the code of the largest unit that is at most a share of the reach, or else of the
// smallest unit.
func codeOf(share float64) int {
	for code := range codec.MaxUnit {
		if unitOf(uint8(code)) <= share {
			return code
		}
	}
	return codec.MaxUnit
}
