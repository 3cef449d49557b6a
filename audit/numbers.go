package audit

import (
	"cmp"
	"math"
	"slices"
)

// agreement returns which share of what was taken is among the largest of the expected
// coefficients, and which share of those has the same sign. Of nothing both are 1.
func agreement(expected []float64, taken Taken) (sets, signs float64) {
	if len(taken.Indices) == 0 {
		return 1, 1
	}
	order := make([]int, len(expected))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(math.Abs(expected[b]), math.Abs(expected[a])), cmp.Compare(a, b))
	})
	among := make(map[uint16]bool, len(taken.Indices))
	for _, index := range order[:min(len(order), len(taken.Indices))] {
		among[uint16(index)] = true
	}
	same, shared := 0, 0
	for i, index := range taken.Indices {
		if !among[index] {
			continue
		}
		shared++
		if (expected[index] < 0) == (taken.Values[i] < 0) {
			same++
		}
	}
	if shared > 0 {
		signs = float64(same) / float64(shared)
	}
	return float64(shared) / float64(len(taken.Indices)), signs
}

func wide(x []float32) []float64 {
	all := make([]float64, len(x))
	for i, v := range x {
		all[i] = float64(v)
	}
	return all
}

// sum returns x + factor·y.
func sum(x, y []float64, factor float64) []float64 {
	all := make([]float64, len(x))
	for i, v := range x {
		all[i] = v + float64(factor*y[i])
	}
	return all
}

// ratio is a/b, and 0 where both are.
func ratio(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return a / b
}
