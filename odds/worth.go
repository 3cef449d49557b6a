package odds

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// Freed returns the share of the chunks that a host frees for an accomplice: it may leave out as many
// of a round's proofs as no quorum needs, each choice of them draws other chunks to be opened, and it
// takes the one that opens none of those that the accomplice cheats in.
func Freed(witnesses, quorum, chunks int) float64 {
	choices, of := 0.0, 1.0
	for left := range witnesses - quorum + 1 {
		choices += of
		of *= float64(witnesses-left) / float64(left+1)
	}
	return -math.Expm1(-math.Log(choices) / float64(chunks))
}

// Injection is a momentum to which a trainer adds something in one step, and nothing afterwards.
type Injection struct {
	Chunk int     // coefficients of a chunk
	TopK  int     // that are sent of it in a step
	Beta  float64 // decay of the momentum
	Usual float64 // length of what is added, in lengths of a gradient, spread over the whole chunk
}

// Worth returns how many steps' coefficients an injection turns until nothing of it is left, or the
// last of so many steps is done: those sent with its sign more than without it, by TopK. Gradients are
// white noise, and what is sent leaves the momentum.
func (j Injection) Worth(steps int, r *rand.Rand) float64 {
	honest, towards := make([]float64, j.Chunk), make([]float64, j.Chunk)
	for i := range towards {
		towards[i] = float64(1 - 2*r.IntN(2))
	}
	for range min(int(6/(1-j.Beta)), 2000) { // until a momentum is as usual
		j.learn(r, honest)
		j.send(honest, towards)
	}
	turned, net := append([]float64(nil), honest...), 0
	for i := range turned {
		turned[i] += towards[i] * j.Usual / j.Beta // the first step's decay is not yet done
	}
	for range steps {
		j.learn(r, honest, turned)
		net += j.send(turned, towards) - j.send(honest, towards)
	}
	return float64(net) / float64(j.TopK)
}

// learn adds one gradient to momenta.
func (j Injection) learn(r *rand.Rand, momenta ...[]float64) {
	for i := range j.Chunk {
		g := r.NormFloat64()
		for _, m := range momenta {
			m[i] = j.Beta*m[i] + g
		}
	}
}

// send takes the largest coefficients out of a momentum, and returns how many more of them had a
// direction's sign than the other one.
func (j Injection) send(momentum, towards []float64) (net int) {
	for _, i := range largest(momentum, j.TopK) {
		if momentum[i]*towards[i] > 0 {
			net++
		} else {
			net--
		}
		momentum[i] = 0
	}
	return net
}

// largest returns the indices of the k values of the largest size.
func largest(of []float64, k int) []int {
	found := &bySize{of: of}
	for i, v := range of {
		if i < k {
			heap.Push(found, i)
		} else if math.Abs(v) > math.Abs(of[found.at[0]]) {
			found.at[0] = i
			heap.Fix(found, 0)
		}
	}
	return found.at
}

// bySize is a heap of indices, that of the smallest value first.
type bySize struct {
	of []float64
	at []int
}

func (b *bySize) Len() int           { return len(b.at) }
func (b *bySize) Less(x, y int) bool { return math.Abs(b.of[b.at[x]]) < math.Abs(b.of[b.at[y]]) }
func (b *bySize) Swap(x, y int)      { b.at[x], b.at[y] = b.at[y], b.at[x] }
func (b *bySize) Push(i any)         { b.at = append(b.at, i.(int)) }
func (b *bySize) Pop() any           { panic("nothing is taken out of it") }
