package odds

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
)

// Freed returns the share of the chunks that a host can exclude from audits for an accomplice. The
// host may omit the proofs of a round that a quorum does not need. Each choice of omitted proofs
// draws different chunks, and the host selects a choice that opens none of the chunks in which the
// accomplice cheats.
func Freed(witnesses, quorum, chunks int) float64 {
	choices, of := 0.0, 1.0
	for left := range witnesses - quorum + 1 {
		choices += of
		of *= float64(witnesses-left) / float64(left+1)
	}
	return -math.Expm1(-math.Log(choices) / float64(chunks))
}

// Injection contains the parameters of values that a trainer adds to its momentum. Gradients are
// white noise, and sent coefficients are removed from the momentum.
type Injection struct {
	Chunk int     // coefficients in a chunk
	TopK  int     // coefficients of a chunk that are sent in a step
	Beta  float64 // decay of the momentum
	Usual float64 // length of the added values relative to a gradient; spread over the whole chunk
}

// Worth returns the effect of an injection in one step, as a multiple of TopK, the coefficients of
// one step. The effect is the number of coefficients sent with the injection's sign in the given
// number of steps, minus the number without an injection.
func (j Injection) Worth(steps int, r *rand.Rand) float64 {
	x := j.begin(r)
	x.add(j.Usual / j.Beta) // to compensate for the decay in the first step
	net := 0
	for range steps {
		net += x.step(r)
	}
	return float64(net) / float64(j.TopK)
}

// Steady returns the share of sent coefficients whose sign is flipped if the same injection is added
// in every step. It is a mean over the given number of steps after a warmup.
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

// warmup returns the number of steps after which a momentum has its usual size.
func (j Injection) warmup() int { return min(int(6/(1-j.Beta)), 2000) }

// twins contains two momenta with the same gradients. Only turned has an injection.
type twins struct {
	Injection
	honest, turned []float64
	towards        []float64 // signs of the injection
}

// begin returns twins with two equal momenta of the usual size.
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

// add injects values before a step.
func (x *twins) add(each float64) {
	for i := range x.turned {
		x.turned[i] += x.towards[i] * each
	}
}

// step returns how many more coefficients with the injection's signs the momentum turned sends than
// the momentum honest.
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

// send removes the largest coefficients from a momentum. It returns the number of removed
// coefficients with the sign of towards, minus the number with the other sign.
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

// largest returns the indices of the k values with the largest magnitude.
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

// bySize is a heap of indices, ordered by ascending magnitude of their values.
type bySize struct {
	of []float64
	at []int
}

func (b *bySize) Len() int           { return len(b.at) }
func (b *bySize) Less(x, y int) bool { return math.Abs(b.of[b.at[x]]) < math.Abs(b.of[b.at[y]]) }
func (b *bySize) Swap(x, y int)      { b.at[x], b.at[y] = b.at[y], b.at[x] }
func (b *bySize) Push(i any)         { b.at = append(b.at, i.(int)) }
func (b *bySize) Pop() any           { panic("nothing is taken out of it") }
