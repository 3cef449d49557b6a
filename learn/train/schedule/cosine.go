package schedule

// halfCosine returns (1 + cos(π·step/total))/2 for step < total, to about 1e-16.
func halfCosine(step, total uint32) float64 {
	// The cosine is odd around the middle, and the integers give 1−p without rounding.
	if mirrored := total - step; mirrored < step {
		return 1 - halfCosine(mirrored, total)
	}
	x := float64(pi * float64(float64(step)/float64(total)))
	return 0.5 + float64(0.5*cosine(float64(x*x)))
}

const pi = 3.14159265358979323846264338327950288

// reciprocalFactorials are 1/(2n)! with the sign of the cosine's Taylor series. At π/2 the first
// omitted term, of x^24, is below 1e-18.
var reciprocalFactorials = [...]float64{
	1,
	-1.0 / 2,
	1.0 / 24,
	-1.0 / 720,
	1.0 / 40320,
	-1.0 / 3628800,
	1.0 / 479001600,
	-1.0 / 87178291200,
	1.0 / 20922789888000,
	-1.0 / 6402373705728000,
	1.0 / 2432902008176640000,
	-1.0 / 1124000727777607680000,
}

// cosine returns cos(√square) for a square of at most (π/2)², by Horner's rule.
func cosine(square float64) float64 {
	sum := 0.0
	for i := len(reciprocalFactorials) - 1; i >= 0; i-- {
		sum = float64(sum*square) + reciprocalFactorials[i]
	}
	return sum
}
