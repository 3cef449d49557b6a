package audit

import "math"

// Decayed returns the fraction of a momentum that remains after the given number of steps of the
// run, βⁿ for a decay of β and n steps. A momentum decays with the run's steps, including steps in
// which its trainer audits or is absent, so the momenta of all trainers have decayed equally.
func Decayed(beta float32, steps uint32) float32 {
	return float32(math.Pow(float64(beta), float64(steps)))
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

// ratio returns a/b, or 0 if both are 0.
func ratio(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return a / b
}
