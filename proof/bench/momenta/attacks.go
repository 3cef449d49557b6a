package momenta

import (
	"math"
	"math/rand/v2"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
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
	Most    float64 // the most that an update may measure
	// Mean is the mean gradient of the honest over the newest steps, which anybody can compute.
	Mean    [][]float32
	Usual   []float64 // chunk for chunk, what is usual in its tensor
	Longest float64   // the most that a chunk of a momentum may measure
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

// The attacks of those who know how they are audited, and of those who save work.
var (
	// BoundedInjection is honest until a momentum has been renewed. Then it adds the negative of what an
	// honest trainer's momentum would be, as long as may be for openings of some chunks not to show by
	// their length that it is no update.
	BoundedInjection = Attack{"injection of the greatest length that openings do not show, once in each memory of the momentum", func(s *Scene) [][]float32 {
		if memory := uint32(1 / (1 - s.Cutting.Decay)); s.Step%max(memory, 2) != 1 {
			return s.Update
		}
		added, left, squares := Copied(s.Update), s.Cutting.Left(s.Honest, s.Step), 0.0
		for i, update := range added {
			for j, before := range s.Honest.Momentum[i] {
				update[j] = -update[j] - left*before
				squares += float64(update[j]) * float64(update[j])
			}
		}
		opened := float64(audit.DefaultChunks) / float64(s.Cutting.Shapes.Chunks())
		return scaled(added, float32(0.8*s.Most/math.Sqrt(squares*opened)))
	}}
	// Lonely adds a pattern of its own to chunks in which it has nearly no gradient, as long as the limits
	// of an audit let pass.
	Lonely = Attack{"a pattern in chunks without a gradient", func(s *Scene) [][]float32 {
		usual := make([]float64, len(s.Update))
		for i, update := range s.Update {
			usual[i] = Length(update) / math.Sqrt(float64(s.Cutting.Shapes[i].Chunks))
		}
		return s.eachChunk(func(tensor int, update, _ []float32) {
			if length := Length(update); length == 0 || length > usual[tensor]/100 {
				return
			}
			by := float32(4e-5 * usual[tensor] / math.Sqrt(float64(len(update))))
			for i := range update {
				if i*7/3%2 == 0 {
					update[i] += by
				} else {
					update[i] -= by
				}
			}
		})
	}}
	// Drift takes from each gradient, in each chunk, as much of the mean gradient as audits in bf16 let pass, so
	// that the momentum sums it up. DriftSent takes it from the coefficients that say most.
	Drift = Attack{"the mean gradient taken away, below the limits of bf16", func(s *Scene) [][]float32 {
		return s.drift(s.Mean)
	}}
	DriftSent = Attack{"the largest coefficients of the mean gradient taken away, below the limits of bf16", func(s *Scene) [][]float32 {
		return s.drift(s.loudest(512))
	}}
	// Stuffed is honest in all but one round of thirty, StuffedOften of ten. In that one it makes what it has not
	// sent the negative of the mean of what the honest come to, as long as may be.
	Stuffed      = Attack{"what is not sent made as long as may be, against the others, in one round of 30", func(s *Scene) [][]float32 { return s.stuffed(30, 10) }}
	StuffedOften = Attack{"the same in one round of ten", func(s *Scene) [][]float32 { return s.stuffed(10, 5) }}
	// Withheld is honest but for sending nothing, which the rules allow: so all chunks move by less.
	Withheld  = Attack{"nothing sent", func(s *Scene) [][]float32 { return s.Update }}
	HalfBatch = Attack{"half the batch", func(s *Scene) [][]float32 { return s.Half }}
	OldBatch  = Attack{"the batch before", func(s *Scene) [][]float32 { return s.Old }}
	Copy      = Attack{"another's result", func(s *Scene) [][]float32 { return s.copy(1) }}
)

// Single are attacks of one step.
func Single() []Attack {
	all := []Attack{
		SignFlip,
		Noise,
		{"twice the gradient", func(s *Scene) [][]float32 { return scaled(s.Update, 2) }},
		{"old gradient", func(s *Scene) [][]float32 { return s.Old }},
		HalfBatch,
		{"another batch", func(s *Scene) [][]float32 { return s.Foreign }},
		{"no gradient", func(s *Scene) [][]float32 { return scaled(s.Update, 0) }},
		Copy,
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

// within is the part of a gradient that Drift moves it by: accusers have 0.075, of which what the types
// differ by on honest machines, up to 0.02, is left.
const within = 0.07

// drift takes something away from each chunk of the update.
func (s *Scene) drift(direction [][]float32) [][]float32 {
	all, chunk := Copied(s.Update), 0
	for i, shape := range s.Cutting.Shapes {
		size := shape.Rows * shape.Cols
		for c := range shape.Chunks {
			update, away := all[i][c*size:][:size], direction[i][c*size:][:size]
			if length, own := Length(away), Length(update); length > 0 && own > 0 {
				by := float32(within * math.Hypot(own, s.Usual[chunk]/4) / length)
				for j := range update {
					update[j] -= by * away[j]
				}
			}
			chunk++
		}
	}
	return all
}

// stuffed is the update of an attack in one of so many rounds of local steps.
func (s *Scene) stuffed(every, at uint32) [][]float32 {
	if s.Step%every != at {
		return s.Update
	}
	left, chunk := s.Cutting.Left(s.Own, s.Step), 0
	return s.eachChunk(func(tensor int, update, momentum []float32) {
		within := chunk
		if chunk++; chunk == s.Cutting.Shapes[tensor].Chunks {
			chunk = 0
		}
		mean := s.Mean[tensor][within*len(update):][:len(update)]
		by := float32(0)
		if length := Length(mean); length > 0 {
			by = float32(0.95 * s.Longest / length * math.Sqrt(float64(len(update))/float64(s.Cutting.largest())))
		}
		for i, v := range mean {
			update[i] = -by*v - left*momentum[i]
		}
	})
}

// loudest returns of each chunk of the mean gradient the signs of so many coefficients, the largest.
func (s *Scene) loudest(count int) [][]float32 {
	c, mean, all := s.Cutting, Copied(s.Mean), s.Cutting.Zeros()
	for i, l := range c.Layouts {
		taken, err := c.Kernel.Encode(l, mean[i], all[i], distro.EncodeParams{Decay: 1, LR: 1, TopK: count})
		if err != nil {
			panic(err) // of finite gradients
		}
		for j, v := range taken.Values {
			if v != 0 {
				taken.Values[j] = float32(math.Copysign(1, float64(v)))
			}
		}
		if err := c.Kernel.AddBack(l, all[i], taken); err != nil {
			panic(err) // a result of the same layout
		}
	}
	return all
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
