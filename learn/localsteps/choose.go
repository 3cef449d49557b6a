package localsteps

import (
	"math"

	"github.com/psyche-go/psyche/core/codec"
)

// chooser chooses the units and levels of a chunk. Members compare the choice of a device with the CPU's, so
// each operation is rounded: a conversion to float64 keeps a product from being fused with a sum.
type chooser struct {
	levels float64 // the largest level
	reach  float64
	sizes  []float64 // scratch: the absolute values of a chunk's coefficients
}

// quantize writes the sent levels of a chunk's coefficients, count entries from at on, and replaces
// the coefficients by the part that is not sent.
func (c *chooser) quantize(coefficients, sent codec.TensorResult, chunk, at, count int) {
	values := coefficients.Values[at : at+count]
	code := c.unit(values)
	unit := c.reach * unitOf(code)
	to, left := at, at
	for i, v := range values {
		index, rest := coefficients.Indices[at+i], v
		if level := math.Copysign(c.level(c.sizes[i], unit), float64(v)); level != 0 {
			sent.Indices[to], sent.Values[to] = index, float32(level)
			to++
			rest = float32(float64(v) - float64(unit*level))
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
		sent.Units[chunk] = code
	}
}

// level returns the level that is nearest to a size, but no more than the largest level. 0 means that the
// size is nearer to zero than to the first level. Half a unit is rounded up.
func (c *chooser) level(size, unit float64) float64 {
	return min(math.Floor(size/unit+0.5), c.levels)
}

// unit returns the unit with the smallest sum of squared errors for the values, or the largest such unit.
// It stores the sizes of the values in c.sizes.
func (c *chooser) unit(values []float32) uint8 {
	c.sizes = c.sizes[:0]
	largest := 0.0
	for _, v := range values {
		size := math.Abs(float64(v))
		c.sizes = append(c.sizes, size)
		largest = max(largest, size)
	}
	first := codeOf(largest / c.reach)                                  // with this unit, the largest value has level 1
	last := min(first+unitsPerOctave*codec.MaxLevelBits, codec.MaxUnit) // with this unit, it exceeds all levels
	best, minimum := first, math.Inf(1)
	for code := first; code <= last; code++ {
		if squares := c.squares(c.reach*unitOf(uint8(code)), minimum); squares < minimum {
			best, minimum = code, squares
		}
	}
	return uint8(best)
}

// squares returns the sum of the squared errors of the sizes with a unit. It may stop as soon as the
// sum reaches a limit.
func (c *chooser) squares(unit, limit float64) float64 {
	sum := 0.0
	for i, size := range c.sizes {
		rest := size - float64(c.level(size, unit)*unit)
		sum += float64(rest * rest)
		if i%8 == 7 && sum >= limit {
			break
		}
	}
	return sum
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
