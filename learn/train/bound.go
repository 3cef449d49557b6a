package train

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/record/config"
)

// localBounds computes the largest changes of weights by the local steps of honest members.
type localBounds struct {
	rates     *rates
	config    config.LocalSteps
	quotients float64 // see longestRound
}

// shake changes weights in their last bits, with alternating signs in a pattern that no tensor's
// shape matches.
func shake(weights []float32) {
	const off = 1 << 4 // in units of the last place
	state := uint32(1)
	for i, w := range weights {
		state = state*1664525 + 1013904223
		bits := math.Float32bits(w)
		if state>>31 == 0 {
			bits += off
		} else if bits<<1 >= 2*off { // only if the sign does not change
			bits -= off
		}
		weights[i] = math.Float32frombits(bits)
	}
}

// unseen is the largest change of a weight that rounding may hide, divided by the weight: restored
// weights are off by a bit or two, and each step rounds.
const unseen = 1.0 / (1 << 21)

// fill fills in the maximum change of the weights in the chunks of a reference, given their values
// at the start of the round.
func (b *localBounds) fill(reference *audit.Reference, begun [][]float32) {
	widest, elements, largest := 0.0, 0, 0
	for _, chunk := range begun {
		for _, w := range chunk {
			widest = max(widest, math.Abs(float64(w)))
		}
		elements, largest = elements+len(chunk), max(largest, len(chunk))
		reference.Tolerance = append(reference.Tolerance, unseen*norm([][]float32{chunk}))
	}
	// A power of two, so that auditors whose weights differ by a bit get the same value. At least
	// twice the maximum, because weights differed in earlier rounds, and change in this one.
	_, exponent := math.Frexp(2 * (widest + b.farthest(reference.Step, 0)))
	weight := math.Ldexp(1, exponent)
	reference.Most = b.farthest(reference.Step, weight) * math.Sqrt(float64(elements))
	const negligible = 1e-9
	longest, factor := 0.0, 1.0
	for s := reference.Step; s >= 1 && factor > negligible; s-- {
		longest += factor * b.farthest(s, weight)
		factor *= b.config.ErrorDecay
	}
	reference.Longest = longest * math.Sqrt(float64(largest))
}

// longestRound returns the maximum change by the steps of a round in a chunk, without weight decay.
// It is a root mean square, in units of the learning rate. For AdamW see quotients. For Muon no
// singular value of a step exceeds muonLargest, so the L2 norm of a chunk of r × c is at most
// muonLargest·√min(r, c).
func longestRound(c config.LocalSteps, u *updater, layouts []distro.Layout) float64 {
	longest := quotients(c.Betas, int(c.InnerSteps))
	for i, p := range u.place.store.parameters {
		if u.byMuon(p) {
			rows, columns := layouts[i].ChunkShape()
			matrix := slices.Max(p.shape[len(p.shape)-2:])
			step := muonLargest * muonLength * math.Sqrt(float64(matrix)/float64(max(rows, columns)))
			longest = max(longest, step*float64(c.InnerSteps))
		}
	}
	return longest
}

// farthest returns the maximum change of the weights of a chunk by the steps of a round, as a root
// mean square, if each weight is at most half of weight. A step rounds each weight twice, by at
// most half a unit in its last place, which exceeds the step itself if the learning rate is small.
func (b *localBounds) farthest(step uint32, weight float64) float64 {
	const rounded = 1.0 / (1 << 25)
	steps := float64(b.config.InnerSteps)
	return float64(b.rates.lr(step))*(b.quotients+steps*b.config.WeightDecay*weight) + steps*rounded*weight
}

// quotients returns an upper bound on the sum, over a number of steps, of the quotients of AdamW's
// two means, which start at zero. By the Cauchy-Schwarz inequality, the bound for step t is
//
//	(1 − β₁)/(1 − β₁ᵗ) · √((1 − β₂ᵗ)/(1 − β₂)) · √(Σ (β₁²/β₂)ⁱ), i from 0 to t − 1
func quotients(betas [2]float64, steps int) (sum float64) {
	first, second, terms, term := 1.0, 1.0, 0.0, 1.0
	for range steps {
		first, second = first*betas[0], second*betas[1]
		terms += term
		if term = term * betas[0] * betas[0]; term > 0 {
			term /= betas[1]
		}
		sum += (1 - betas[0]) / (1 - first) * math.Sqrt((1-second)/(1-betas[1])*terms)
	}
	return sum
}
