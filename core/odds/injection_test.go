package odds

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
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

// Injection is what a trainer adds to a momentum of its own. Gradients are white noise, and what is
// sent leaves the momentum.
type Injection struct {
	Chunk int     // coefficients of a chunk
	TopK  int     // that are sent of it in a step
	Beta  float64 // decay of the momentum
	Usual float64 // length of what is added, in lengths of a gradient, spread over the whole chunk
}

// Worth returns how many steps' coefficients an injection of one step turns until nothing of it is
// left, or the last of so many steps is done: those sent with its sign more than without it, by TopK.
func (j Injection) Worth(steps int, r *rand.Rand) float64 {
	x := j.begin(r)
	x.add(j.Usual / j.Beta) // the first step's decay is not yet done
	net := 0
	for range steps {
		net += x.step(r)
	}
	return float64(net) / float64(j.TopK)
}

// Steady returns which share of the coefficients sent is turned by who adds the same in every step,
// once that is as usual, as the mean of so many steps.
func (j Injection) Steady(steps int, r *rand.Rand) float64 {
	x := j.begin(r)
	net, before := 0, j.warmup()
	for i := range before + steps {
		x.add(j.Usual / j.Beta)
		if turned := x.step(r); i >= before {
			net += turned
		}
	}
	return float64(net) / float64(j.TopK*steps)
}

// warmup is the number of steps until a momentum is as usual.
func (j Injection) warmup() int { return min(int(6/(1-j.Beta)), 2000) }

// twins are two momenta that have the same gradients; one of them has an injection.
type twins struct {
	Injection
	honest, turned []float64
	towards        []float64 // signs of what is injected
}

// begin returns twins that are as usual, and alike.
func (j Injection) begin(r *rand.Rand) *twins {
	x := &twins{Injection: j, honest: make([]float64, j.Chunk), towards: make([]float64, j.Chunk)}
	for i := range x.towards {
		x.towards[i] = float64(1 - 2*r.IntN(2))
	}
	for range j.warmup() {
		j.learn(r, x.honest)
		j.send(x.honest, x.towards)
	}
	x.turned = slices.Clone(x.honest)
	return x
}

// add injects, before a step.
func (x *twins) add(each float64) {
	for i := range x.turned {
		x.turned[i] += x.towards[i] * each
	}
}

// step returns how many more coefficients the one sends with the injection's signs than the other.
func (x *twins) step(r *rand.Rand) int {
	x.learn(r, x.honest, x.turned)
	return x.send(x.turned, x.towards) - x.send(x.honest, x.towards)
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
