package audit

import (
	"math"
	"slices"
)

// Decayed returns what is left of a momentum after so many steps of the run, βⁿ for a decay of β. A
// momentum decays with the run's steps and not with its trainer's own: a trainer
// that audits in a step, or misses one, goes on from a momentum as old as everybody else's.
func Decayed(beta float32, steps uint32) float32 {
	return float32(math.Pow(float64(beta), float64(steps)))
}

// agreement returns which share of what was taken is among the largest of the expected
// coefficients, and which share of those has the same sign. Of nothing both are 1.
func agreement(expected []float64, taken Taken) (sets, signs float64) {
	if len(taken.Indices) == 0 {
		return 1, 1
	}
	least, same, shared := leastOf(expected, len(taken.Indices)), 0, 0
	for i, index := range taken.Indices {
		if math.Abs(expected[index]) < least {
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

// leastOf returns the smallest of the k largest magnitudes.
func leastOf(x []float64, k int) float64 {
	magnitudes := make([]float64, len(x))
	for i, v := range x {
		magnitudes[i] = math.Abs(v)
	}
	slices.Sort(magnitudes)
	return magnitudes[len(magnitudes)-k]
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
