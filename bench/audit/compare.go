package main

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/bench/momenta"
)

// prints compares what verifiers of a trainer commit to, and what one that has no gradient
// could: the prints of another batch.
func (c *calibration) prints(step uint32, t int, chunks []uint32, answers [][]answer) {
	seed := c.random.Uint64()
	own := c.exam(step, t, answers[t][t], chunks).Prints(seed)
	for v := range c.workers {
		other, guess := c.exam(step, t, answers[v][t], chunks).Prints(seed), c.exam(step, t, answers[t][v], chunks).Prints(seed)
		if v == t {
			continue
		}
		_ = c.write(row{Kind: "print", Step: step, Trainer: c.workers[t].name, Verifier: c.workers[v].name, Sets: audit.Alike(own, other, 0.05)})
		_ = c.write(row{Kind: "guessed print", Step: step, Trainer: c.workers[t].name, Verifier: c.workers[v].name, Sets: audit.Alike(own, guess, 0.05)})
	}
}

// overlaps compares what trainers sent.
func (c *calibration) overlaps(step uint32, t int, chunks []uint32, states []*momenta.State) {
	for other := t + 1; other < len(states); other++ {
		o := audit.Compare(c.cut.Shapes, chunks, states[t].Taken, states[other].Taken)
		_ = c.write(row{Kind: "overlap", Step: step, Trainer: c.workers[t].name, Verifier: c.workers[other].name,
			Sets: round(o.Share()), Signs: round(float64(o.Opposite) / float64(max(1, o.Same+o.Opposite)))})
	}
}

// kin compares the momentum of a trainer with the next one's: what a verifier could, too.
func (c *calibration) kin(step uint32, t int, chunks []uint32) {
	other := (t + 1) % len(c.states)
	r := row{Kind: "kin", Step: step, Trainer: c.workers[t].name, Verifier: c.workers[other].name, Cosine: 1}
	least := math.Inf(1)
	for _, chunk := range chunks {
		tensor, within, _ := c.cut.Shapes.Find(chunk)
		a := c.cut.Layouts[tensor].Chunk(c.states[t].Momentum[tensor], within, nil)
		b := c.cut.Layouts[tensor].Chunk(c.states[other].Momentum[tensor], within, nil)
		la, lb, product := momenta.Length(a), momenta.Length(b), 0.0
		for i := range a {
			product += float64(a[i]) * float64(b[i])
		}
		if la > 0 && lb > 0 {
			r.Cosine = min(r.Cosine, product/la/lb)
			r.Length, least = max(r.Length, la/lb), min(least, la/lb)
			r.Top = append(r.Top, product/la/lb)
		}
	}
	slices.Sort(r.Top)
	if len(r.Top) > 0 {
		r.Middle = round(r.Top[len(r.Top)/2])
	}
	r.Top, r.Cosine, r.Length, r.Momentum = nil, round(r.Cosine), round(r.Length), round(min(least, 1e9))
	_ = c.write(r)
}

func (c *calibration) write(r row) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Encode(r)
}
