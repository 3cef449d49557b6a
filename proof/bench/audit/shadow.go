package main

import (
	"math"
	"math/rand/v2"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/proof/bench/momenta"
)

// shadow is an attacker that always stays below a limit. In addition to the gradients of the first
// stack, it adds a vector with a fraction of their length to its momentum. The vector always has
// the same coefficients, as many as are sent. Its results are not applied. The measurement is its
// share of the sent coefficients.
type shadow struct {
	name   string
	change func(step uint32, s *shadow, cut *momenta.Cutting, update [][]float32) [][]float32
	target [][]uint16 // of each chunk, ascending
	state  *momenta.State
}

func shadows(turn uint32) []*shadow {
	var all []*shadow
	for _, size := range []struct {
		name string
		by   float32
	}{{"1 %", 0.01}, {"5 %", 0.05}, {"20 %", 0.2}, {"100 %", 1}} {
		all = append(all, &shadow{name: "steady addition of " + size.name, change: func(_ uint32, s *shadow, cut *momenta.Cutting, update [][]float32) [][]float32 {
			return s.push(cut, update, size.by)
		}})
	}
	return append(all, &shadow{name: "momentum turned round in one step", change: func(step uint32, s *shadow, cut *momenta.Cutting, update [][]float32) [][]float32 {
		if step != turn {
			return update
		}
		other := momenta.Copied(update)
		for i := range other {
			for j := range other[i] {
				other[i][j] = -other[i][j] - 2*cut.Decay*s.state.Momentum[i][j]
			}
		}
		return other
	}})
}

// begin draws the attacker's coefficients.
func (s *shadow) begin(cut *momenta.Cutting) {
	s.state = cut.Begin()
	random := rand.New(rand.NewPCG(9, 9))
	for _, shape := range cut.Shapes {
		for range shape.Chunks {
			wanted := map[uint16]bool{}
			for len(wanted) < shape.K {
				wanted[uint16(random.IntN(shape.Rows*shape.Cols))] = true
			}
			var sorted []uint16
			for i := range shape.Rows * shape.Cols {
				if wanted[uint16(i)] {
					sorted = append(sorted, uint16(i))
				}
			}
			s.target = append(s.target, sorted)
		}
	}
}

// push adds the attacker's coefficients.
func (s *shadow) push(cut *momenta.Cutting, update [][]float32, by float32) [][]float32 {
	other, first := momenta.Copied(update), 0
	for i, shape := range cut.Shapes {
		size := shape.Rows * shape.Cols
		r := cut.Layouts[i].Codec(topK).NewResult()
		for c := range shape.Chunks {
			r.Counts[c] = uint16(shape.K)
			each := by * float32(momenta.Length(update[i][c*size:][:size])) / float32(math.Sqrt(float64(shape.K)))
			for j, index := range s.target[first+c] {
				r.Indices[c*shape.K+j], r.Values[c*shape.K+j] = index, max(each, 1e-30)
			}
		}
		if err := cut.Kernel.AddBack(cut.Layouts[i], other[i], r); err != nil {
			panic(err) // cannot happen: both results have the same layout
		}
		first += shape.Chunks
	}
	return other
}

// chosen returns the share of the sent coefficients that the attacker wanted.
func (s *shadow) chosen(cut *momenta.Cutting) float64 {
	wanted := make([]codec.TensorResult, len(cut.Layouts))
	first := 0
	for i, l := range cut.Layouts {
		wanted[i] = l.Codec(topK).NewResult()
		k := cut.Shapes[i].K
		for c := range cut.Shapes[i].Chunks {
			wanted[i].Counts[c] = uint16(k)
			copy(wanted[i].Indices[c*k:], s.target[first+c])
			for j := range k {
				wanted[i].Values[c*k+j] = 1
			}
		}
		first += cut.Shapes[i].Chunks
	}
	o := momenta.Compare(cut.Shapes, s.state.Taken, wanted)
	return float64(o.Same) / float64(max(1, o.Entries))
}
