package momenta

import (
	"math"
	"math/rand/v2"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// Scene is an attacker's data in a step. Own is its state before the step. Honest is the state of a
// trainer that was always honest. Both are equal for an attacker that attacks once.
type Scene struct {
	Cutting *Cutting
	Random  *rand.Rand
	Step    uint32
	Own     *State
	Honest  *State
	Update  [][]float32 // an honest trainer's update
	Old     [][]float32 // its update in the previous step
	Half    [][]float32 // of the first half of its batch
	Foreign [][]float32 // of a different batch
	Others  []codec.TensorResult
	Most    float64 // maximum length of an update
	// Mean is the mean gradient of the honest trainers over the newest steps, which every trainer
	// can compute.
	Mean    [][]float32
	Usual   []float64 // per chunk: the usual length in its tensor
	Longest float64   // maximum length of a chunk's momentum
}

// Attack is a named attack with the update that the attacker adds to its momentum. The attacker
// follows all other rules, so that only the gradient can reveal it.
type Attack struct {
	Name string
	Fake func(s *Scene) [][]float32
}

// Attacks for whole training runs.
var (
	SignFlip    = Attack{"sign-flip", func(s *Scene) [][]float32 { return scaled(s.Update, -1) }}
	Noise       = Attack{"noise of the same size", func(s *Scene) [][]float32 { return s.noise(1, false) }}
	NegatedCopy = Attack{"negated copy", func(s *Scene) [][]float32 { return s.copy(-1) }}
	// Injection is honest in nine of ten steps. In the tenth it makes its momentum the negative of
	// an honest trainer's momentum, three times as long.
	Injection = Attack{"momentum turned round, in a tenth of the steps", func(s *Scene) [][]float32 {
		if s.Step%10 != 1 {
			return s.Update
		}
		honest, ofHonest, ofOwn := Copied(s.Update), s.Cutting.left(s.Honest, s.Step), s.Cutting.left(s.Own, s.Step)
		for i, update := range honest {
			for j, before := range s.Honest.Momentum[i] {
				implied := update[j] + ofHonest*before
				update[j] = -3*implied - ofOwn*s.Own.Momentum[i][j]
			}
		}
		return honest
	}}
)

// Attacks that are adapted to the audits, and attacks that save work.
var (
	// BoundedInjection is honest until a momentum has been renewed. Then it adds the negative of an
	// honest trainer's momentum, with the greatest length at which openings of some chunks do not
	// reveal that it is not an update.
	BoundedInjection = Attack{"injection of the greatest length that openings do not show, once in each memory of the momentum", func(s *Scene) [][]float32 {
		if memory := uint32(1 / (1 - s.Cutting.Decay)); s.Step%max(memory, 2) != 1 {
			return s.Update
		}
		added, left, squares := Copied(s.Update), s.Cutting.left(s.Honest, s.Step), 0.0
		for i, update := range added {
			for j, before := range s.Honest.Momentum[i] {
				update[j] = -update[j] - left*before
				squares += float64(update[j]) * float64(update[j])
			}
		}
		opened := float64(audit.DefaultChunks) / float64(s.Cutting.Shapes.Chunks())
		return scaled(added, float32(0.8*s.Most/math.Sqrt(squares*opened)))
	}}
	// LowSupport adds its own pattern to chunks in which it has almost no gradient, with the greatest
	// length that passes an audit.
	LowSupport = Attack{"a pattern in chunks without a gradient", func(s *Scene) [][]float32 {
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
	// Drift subtracts from each gradient, in each chunk, as much of the mean gradient as passes
	// audits in bf16, so that the momentum accumulates it. DriftSent subtracts it from the
	// coefficients with the greatest effect.
	Drift = Attack{"the mean gradient taken away, below the limits of bf16", func(s *Scene) [][]float32 {
		return s.drift(s.Mean)
	}}
	DriftSent = Attack{"the largest coefficients of the mean gradient taken away, below the limits of bf16", func(s *Scene) [][]float32 {
		return s.drift(s.loudest(512))
	}}
	// Stuffed lies in one round of thirty, StuffedOften in one of ten; the other rounds are honest.
	// When it lies, it replaces its residual with the negative of the honest trainers' mean, with
	// the maximum length.
	Stuffed      = Attack{"what is not sent made as long as may be, against the others, in one round of 30", func(s *Scene) [][]float32 { return s.stuffed(30, 10) }}
	StuffedOften = Attack{"the same in one round of ten", func(s *Scene) [][]float32 { return s.stuffed(10, 5) }}
	// Withheld is honest but sends nothing, which the rules permit, so that all chunks move less.
	Withheld  = Attack{"nothing sent", func(s *Scene) [][]float32 { return s.Update }}
	HalfBatch = Attack{"half the batch", func(s *Scene) [][]float32 { return s.Half }}
	OldBatch  = Attack{"the batch before", func(s *Scene) [][]float32 { return s.Old }}
	Copy      = Attack{"another's result", func(s *Scene) [][]float32 { return s.copy(1) }}
)

// Single returns attacks of one step.
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
			left := s.Cutting.left(s.Own, s.Step)
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

// noise draws a direction for each chunk, with a fraction of the update's length. If add is set, it
// is added to the update.
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

// within is the relative change of a gradient by Drift: the accusers' limit of 0.075, minus room
// for differences between types on honest machines, which are up to 0.02.
const within = 0.07

// drift subtracts a direction from each chunk of the update.
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

// stuffed returns the update of an attack in one of every rounds of local steps.
func (s *Scene) stuffed(every, at uint32) [][]float32 {
	if s.Step%every != at {
		return s.Update
	}
	left, chunk := s.Cutting.left(s.Own, s.Step), 0
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

// loudest returns, for each chunk of the mean gradient, the signs of its count largest
// coefficients.
func (s *Scene) loudest(count int) [][]float32 {
	c, mean, all := s.Cutting, Copied(s.Mean), s.Cutting.Zeros()
	for i, l := range c.Layouts {
		taken, err := c.Kernel.Encode(l, mean[i], all[i], distro.EncodeParams{Decay: 1, LR: 1, TopK: count})
		if err != nil {
			panic(err) // cannot happen: the gradients are finite
		}
		for j, v := range taken.Values {
			if v != 0 {
				taken.Values[j] = float32(math.Copysign(1, float64(v)))
			}
		}
		if err := c.Kernel.AddBack(l, all[i], taken); err != nil {
			panic(err) // cannot happen: both results have the same layout
		}
	}
	return all
}

// copy fabricates a momentum from which exactly another trainer's result is taken, with the length
// of the attacker's momentum.
func (s *Scene) copy(sign float32) [][]float32 {
	c, zero, left := s.Cutting, s.Cutting.Zeros(), s.Cutting.left(s.Own, s.Step)
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
			panic(err) // cannot happen: both results have the same layout
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

// eachChunk applies f to a copy of each chunk of the update.
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
