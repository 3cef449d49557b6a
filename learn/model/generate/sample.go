package generate

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// errNotFinite means that a model returns unusable logits.
var errNotFinite = errors.New("the model's logits are not finite; check that the weights are a trained model")

// sampler draws the next token from logits.
type sampler struct {
	options Options
	random  *rand.Rand
	ids     []int32
	shares  []float64
	seen    []bool // scratch: penalised tokens
}

func newSampler(o Options) sampler {
	return sampler{options: o, random: rand.New(rand.NewPCG(o.Seed, 0))}
}

// next returns the ID of a token. text contains the existing tokens. next changes logits.
func (s *sampler) next(logits []float32, text []int32) (int32, error) {
	for _, logit := range logits {
		if math.IsNaN(float64(logit)) || math.IsInf(float64(logit), 0) {
			return 0, errNotFinite
		}
	}
	s.penalise(logits, text)
	if s.options.Temperature == 0 || s.options.TopK == 1 {
		return int32(argmax(logits)), nil
	}
	s.ids = s.ids[:0]
	for i := range logits {
		s.ids = append(s.ids, int32(i))
	}
	ids := s.ids
	if s.options.TopK > 0 || s.options.TopP < 1 {
		slices.SortFunc(ids, func(a, b int32) int {
			switch {
			case logits[a] > logits[b]:
				return -1
			case logits[a] < logits[b]:
				return 1
			}
			return int(a - b)
		})
	}
	if s.options.TopK > 0 {
		ids = ids[:min(s.options.TopK, len(ids))]
	}
	return s.draw(logits, ids), nil
}

// penalise makes tokens that already occur in the text less likely, each once.
func (s *sampler) penalise(logits []float32, text []int32) {
	if s.options.RepetitionPenalty == 1 {
		return
	}
	if s.seen == nil {
		s.seen = make([]bool, len(logits))
	}
	clear(s.seen)
	for _, id := range text {
		if int(id) >= len(logits) || s.seen[id] {
			continue
		}
		s.seen[id] = true
		if logits[id] > 0 {
			logits[id] /= float32(s.options.RepetitionPenalty)
		} else {
			logits[id] *= float32(s.options.RepetitionPenalty)
		}
	}
}

// draw draws one of ids by its probability. With TopP below 1 they are sorted, the most likely
// first.
func (s *sampler) draw(logits []float32, ids []int32) int32 {
	largest := float64(math.Inf(-1))
	for _, id := range ids {
		largest = max(largest, float64(logits[id]))
	}
	s.shares = s.shares[:0]
	total := 0.0
	for _, id := range ids {
		share := math.Exp((float64(logits[id]) - largest) / s.options.Temperature)
		s.shares = append(s.shares, share)
		total += share
	}
	if s.options.TopP < 1 {
		sum := 0.0
		for i, share := range s.shares {
			if sum += share; sum >= s.options.TopP*total {
				s.shares, total = s.shares[:i+1], sum
				break
			}
		}
	}
	point := s.random.Float64() * total
	for i, share := range s.shares {
		if point -= share; point < 0 {
			return ids[i]
		}
	}
	return ids[len(s.shares)-1] // reached only because of rounding
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
