package main

import (
	"math"
	"math/rand/v2"

	"github.com/psyche-go/psyche/distro/codec"
)

// scene is what an attacker has in a step: it was honest until then.
type scene struct {
	cut     *cutting
	random  *rand.Rand
	own     *made       // its state before the step
	update  [][]float32 // what an honest trainer would add
	old     [][]float32 // what it added in the step before
	half    [][]float32 // of the first half of its batch
	foreign [][]float32 // of another batch
	others  []codec.TensorResult
}

// attack returns what an attacker adds to its momentum instead. All else it does as the rules
// want, so that only the gradient can give it away.
type attack struct {
	name string
	fake func(s *scene) [][]float32
}

func attacks() []attack {
	all := []attack{
		{"sign-flip", func(s *scene) [][]float32 { return scaled(s.update, -1) }},
		{"noise of the same size", func(s *scene) [][]float32 { return s.noise(1, false) }},
		{"twice the gradient", func(s *scene) [][]float32 { return scaled(s.update, 2) }},
		{"old gradient", func(s *scene) [][]float32 { return s.old }},
		{"half the batch", func(s *scene) [][]float32 { return s.half }},
		{"another batch", func(s *scene) [][]float32 { return s.foreign }},
		{"no gradient", func(s *scene) [][]float32 { return scaled(s.update, 0) }},
		{"copy", func(s *scene) [][]float32 { return s.copy(1) }},
		{"negated copy", func(s *scene) [][]float32 { return s.copy(-1) }},
		{"momentum turned round, once", func(s *scene) [][]float32 {
			return s.eachChunk(func(_ int, update, momentum []float32) {
				for i, m := range momentum {
					update[i] = -update[i] - 2*momentumDecay*m
				}
			})
		}},
		{"sign-flip in a tenth of the chunks", func(s *scene) [][]float32 {
			return s.eachChunk(func(_ int, update, _ []float32) {
				if s.random.IntN(10) > 0 {
					return
				}
				for i := range update {
					update[i] = -update[i]
				}
			})
		}},
	}
	for _, size := range []struct {
		name string
		by   float64
	}{{"1 %", 0.01}, {"3 %", 0.03}, {"5 %", 0.05}, {"10 %", 0.1}, {"20 %", 0.2}, {"30 %", 0.3}, {"50 %", 0.5}} {
		all = append(all, attack{"addition of " + size.name, func(s *scene) [][]float32 { return s.noise(size.by, true) }})
	}
	return all
}

// noise draws a direction for each chunk and gives it a part of the update's length there; with
// add it is added to the update.
func (s *scene) noise(by float64, add bool) [][]float32 {
	return s.eachChunk(func(_ int, update, _ []float32) {
		direction, sum := make([]float64, len(update)), 0.0
		for i := range direction {
			direction[i] = s.random.NormFloat64()
			sum += direction[i] * direction[i]
		}
		factor := by * lengthOf(update) / math.Sqrt(sum)
		for i, d := range direction {
			if !add {
				update[i] = 0
			}
			update[i] += float32(factor * d)
		}
	})
}

// copy makes up a momentum of which exactly what another trainer sent is taken, of the
// length that the own one has.
func (s *scene) copy(sign float32) [][]float32 {
	zero := s.cut.zeros()
	for i, l := range s.cut.layouts {
		r := codec.TensorResult{Counts: s.others[i].Counts, Indices: s.others[i].Indices}
		for _, v := range s.others[i].Values {
			switch {
			case v > 0:
				r.Values = append(r.Values, sign)
			case v < 0:
				r.Values = append(r.Values, -sign)
			default:
				r.Values = append(r.Values, 0)
			}
		}
		if err := s.cut.kernel.AddBack(l, zero[i], r); err != nil {
			panic(err) // a result of the same layout
		}
	}
	at := 0
	return s.eachChunk(func(tensor int, update, momentum []float32) {
		chunk := s.cut.layouts[tensor].Chunk(zero[tensor], at%s.cut.shapes[tensor].Chunks, nil)
		factor := float32(1)
		if length := lengthOf(chunk); length > 0 {
			factor = float32(max(lengthOf(momentum), lengthOf(update)) / length)
		}
		for i, v := range chunk {
			update[i] = factor*v - momentumDecay*momentum[i]
		}
		at++
		if at == s.cut.shapes[tensor].Chunks {
			at = 0
		}
	})
}

// eachChunk lets f change a copy of each chunk of the update.
func (s *scene) eachChunk(f func(tensor int, update, momentum []float32)) [][]float32 {
	all := copied(s.update)
	for i, shape := range s.cut.shapes {
		size := shape.Rows * shape.Cols
		for c := range shape.Chunks {
			f(i, all[i][c*size:][:size], s.own.momentum[i][c*size:][:size])
		}
	}
	return all
}

func scaled(all [][]float32, by float32) [][]float32 {
	other := copied(all)
	for _, one := range other {
		for i := range one {
			one[i] *= by
		}
	}
	return other
}

func lengthOf(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

func root(n int) float32 { return float32(math.Sqrt(float64(n))) }
