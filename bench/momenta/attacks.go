package momenta

import (
	"math"
	"math/rand/v2"

	"github.com/psyche-go/psyche/distro/codec"
)

// Scene is what an attacker has in a step. Own is its state before the step, Honest that of a
// trainer which was honest until then and is now, too; both are the same where it attacks once.
type Scene struct {
	Cutting *Cutting
	Random  *rand.Rand
	Step    uint32
	Own     *State
	Honest  *State
	Update  [][]float32 // what an honest trainer would add
	Old     [][]float32 // what it added in the step before
	Half    [][]float32 // of the first half of its batch
	Foreign [][]float32 // of another batch
	Others  []codec.TensorResult
}

// Attack is a name and what such an attacker adds to its momentum. All else it does as the rules
// want, so that only the gradient can give it away.
type Attack struct {
	Name string
	Fake func(s *Scene) [][]float32
}

// The attacks that a run can be trained under.
var (
	SignFlip    = Attack{"sign-flip", func(s *Scene) [][]float32 { return scaled(s.Update, -1) }}
	Noise       = Attack{"noise of the same size", func(s *Scene) [][]float32 { return s.noise(1, false) }}
	NegatedCopy = Attack{"negated copy", func(s *Scene) [][]float32 { return s.copy(-1) }}
	// Injection is honest in nine of ten steps. In the tenth it makes its momentum the negative of
	// what an honest trainer's would be, three times as long.
	Injection = Attack{"momentum turned round, in a tenth of the steps", func(s *Scene) [][]float32 {
		if s.Step%10 != 1 {
			return s.Update
		}
		honest, ofHonest, ofOwn := Copied(s.Update), s.Cutting.Left(s.Honest, s.Step), s.Cutting.Left(s.Own, s.Step)
		for i, update := range honest {
			for j, before := range s.Honest.Momentum[i] {
				implied := update[j] + ofHonest*before
				update[j] = -3*implied - ofOwn*s.Own.Momentum[i][j]
			}
		}
		return honest
	}}
)

// Single are attacks of one step.
func Single() []Attack {
	all := []Attack{
		SignFlip,
		Noise,
		{"twice the gradient", func(s *Scene) [][]float32 { return scaled(s.Update, 2) }},
		{"old gradient", func(s *Scene) [][]float32 { return s.Old }},
		{"half the batch", func(s *Scene) [][]float32 { return s.Half }},
		{"another batch", func(s *Scene) [][]float32 { return s.Foreign }},
		{"no gradient", func(s *Scene) [][]float32 { return scaled(s.Update, 0) }},
		{"copy", func(s *Scene) [][]float32 { return s.copy(1) }},
		NegatedCopy,
		{"momentum turned round, once", func(s *Scene) [][]float32 {
			left := s.Cutting.Left(s.Own, s.Step)
			return s.eachChunk(func(_ int, update, momentum []float32) {
				for i, m := range momentum {
					update[i] = -update[i] - 2*left*m
				}
			})
		}},
		{"sign-flip in a tenth of the chunks", func(s *Scene) [][]float32 {
			return s.eachChunk(func(_ int, update, _ []float32) {
				if s.Random.IntN(10) > 0 {
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
		all = append(all, Attack{"addition of " + size.name, func(s *Scene) [][]float32 { return s.noise(size.by, true) }})
	}
	return all
}

// noise draws a direction for each chunk and gives it a part of the update's length there; with
// add it is added to the update.
func (s *Scene) noise(by float64, add bool) [][]float32 {
	return s.eachChunk(func(_ int, update, _ []float32) {
		direction, sum := make([]float64, len(update)), 0.0
		for i := range direction {
			direction[i] = s.Random.NormFloat64()
			sum += direction[i] * direction[i]
		}
		factor := by * Length(update) / math.Sqrt(sum)
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
func (s *Scene) copy(sign float32) [][]float32 {
	c, zero, left := s.Cutting, s.Cutting.Zeros(), s.Cutting.Left(s.Own, s.Step)
	for i, l := range c.Layouts {
		r := codec.TensorResult{Counts: s.Others[i].Counts, Indices: s.Others[i].Indices}
		for _, v := range s.Others[i].Values {
			switch {
			case v > 0:
				r.Values = append(r.Values, sign)
			case v < 0:
				r.Values = append(r.Values, -sign)
			default:
				r.Values = append(r.Values, 0)
			}
		}
		if err := c.Kernel.AddBack(l, zero[i], r); err != nil {
			panic(err) // a result of the same layout
		}
	}
	at := 0
	return s.eachChunk(func(tensor int, update, momentum []float32) {
		chunk := c.Layouts[tensor].Chunk(zero[tensor], at%c.Shapes[tensor].Chunks, nil)
		factor := float32(1)
		if length := Length(chunk); length > 0 {
			factor = float32(max(Length(momentum), Length(update)) / length)
		}
		for i, v := range chunk {
			update[i] = factor*v - left*momentum[i]
		}
		at++
		if at == c.Shapes[tensor].Chunks {
			at = 0
		}
	})
}

// eachChunk lets f change a copy of each chunk of the update.
func (s *Scene) eachChunk(f func(tensor int, update, momentum []float32)) [][]float32 {
	all := Copied(s.Update)
	for i, shape := range s.Cutting.Shapes {
		size := shape.Rows * shape.Cols
		for c := range shape.Chunks {
			f(i, all[i][c*size:][:size], s.Own.Momentum[i][c*size:][:size])
		}
	}
	return all
}

func scaled(all [][]float32, by float32) [][]float32 {
	other := Copied(all)
	for _, one := range other {
		for i := range one {
			one[i] *= by
		}
	}
	return other
}
