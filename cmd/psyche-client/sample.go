package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// sampler draws the next token from logits.
type sampler struct {
	temperature float64 // 0: always the most likely token
	topK        int     // only so many of the most likely tokens; 0: all
	random      *rand.Rand
}

// next returns the id of a token. Of equal logits the lower id is the more likely one.
func (s sampler) next(logits []float32) int32 {
	if s.temperature == 0 || s.topK == 1 {
		return int32(argmax(logits))
	}
	ids := make([]int32, len(logits))
	for i := range ids {
		ids[i] = int32(i)
	}
	if s.topK > 0 && s.topK < len(ids) {
		slices.SortStableFunc(ids, func(a, b int32) int {
			switch {
			case logits[a] > logits[b]:
				return -1
			case logits[a] < logits[b]:
				return 1
			}
			return 0
		})
		ids = ids[:s.topK]
	}
	largest := float64(logits[argmax(logits)])
	weights := make([]float64, len(ids))
	total := 0.0
	for i, id := range ids {
		weights[i] = math.Exp((float64(logits[id]) - largest) / s.temperature)
		total += weights[i]
	}
	point := s.random.Float64() * total
	for i, weight := range weights {
		if point -= weight; point < 0 {
			return ids[i]
		}
	}
	return ids[len(ids)-1] // only rounding gets here
}

func argmax(logits []float32) int {
	best := 0
	for i, logit := range logits {
		if logit > logits[best] {
			best = i
		}
	}
	return best
}
