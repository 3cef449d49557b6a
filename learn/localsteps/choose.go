package localsteps

import (
	"cmp"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/codec"
)

// chooser chooses what is sent of a chunk, and in which unit. That is the sender's own business: its
// bits need not be the same elsewhere.
type chooser struct {
	most   int     // elements
	levels float64 // the largest
	reach  float32
	chosen []chosen // ascending by index
}

// chosen is an element of a chunk and its magnitude.
type chosen struct {
	size  float32
	index uint16
}

// smaller orders elements by magnitude, of equals the later one first.
func smaller(a, b chosen) bool { return a.size < b.size || a.size == b.size && a.index > b.index }

// choose finds the largest elements of a chunk that are not zero.
func (c *chooser) choose(chunk []float32) {
	heap := c.chosen[:0] // the smallest lies first
	for i, v := range chunk {
		next := chosen{max(v, -v), uint16(i)}
		switch {
		case next.size == 0:
		case len(heap) < c.most:
			heap = append(heap, next)
			for at := len(heap) - 1; at > 0 && smaller(heap[at], heap[(at-1)/2]); at = (at - 1) / 2 {
				heap[at], heap[(at-1)/2] = heap[(at-1)/2], heap[at]
			}
		case smaller(heap[0], next):
			heap[0] = next
			sink(heap)
		}
	}
	slices.SortFunc(heap, func(a, b chosen) int { return cmp.Compare(a.index, b.index) })
	c.chosen = heap
}

// sink brings a heap whose first element was replaced into order.
func sink(heap []chosen) {
	for at := 0; ; {
		child := 2*at + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && smaller(heap[child+1], heap[child]) {
			child++
		}
		if !smaller(heap[child], heap[at]) {
			return
		}
		heap[at], heap[child] = heap[child], heap[at]
		at = child
	}
}

// level returns the level that is nearest to a magnitude, up to the largest; 0: it is nearer to zero.
func (c *chooser) level(size float32, unit uint8) float64 {
	return min(math.Round(float64(size)/(float64(c.reach)*Unit(unit))), c.levels)
}

// unit returns the unit that leaves the least of what was chosen, in squares.
func (c *chooser) unit() uint8 {
	if len(c.chosen) == 0 {
		return 0
	}
	largest := slices.MaxFunc(c.chosen, func(a, b chosen) int { return cmp.Compare(a.size, b.size) }).size
	first := codeOf(float64(largest) / float64(c.reach))                // the largest would be of level 1
	last := min(first+unitsPerOctave*codec.MaxLevelBits, codec.MaxUnit) // and here beyond all levels
	best, least := uint8(first), math.Inf(1)
	for code := first; code <= last; code++ {
		left := 0.0
		for _, chosen := range c.chosen {
			rest := float64(chosen.size) - c.level(chosen.size, uint8(code))*float64(c.reach)*Unit(uint8(code))
			left += rest * rest
		}
		if left < least {
			best, least = uint8(code), left
		}
	}
	return best
}

// codeOf returns the largest unit that is not larger than a share of Reach, or else the smallest there is.
func codeOf(share float64) int {
	for code := range codec.MaxUnit {
		if Unit(uint8(code)) <= share {
			return code
		}
	}
	return codec.MaxUnit
}
