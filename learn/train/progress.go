package train

import "sync"

// progress is the part of a training that is computed. Its methods are safe for concurrent use.
type progress struct {
	mu              sync.Mutex
	complete, begun float64
	steps           int // local steps of the training
}

// reset begins a training.
func (p *progress) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complete, p.begun, p.steps = 0, 0, 1
}

// divide states the number of local steps of the training.
func (p *progress) divide(steps int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = max(1, steps)
}

// begin records that the computation of a part of a step begins. The caller calls done at its end.
func (p *progress) begin(share float64) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	share /= float64(max(1, p.steps))
	p.begun += share
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.complete += share
	}
}

// parts returns the parts of the training that are complete, and that have begun.
func (p *progress) parts() (complete, begun float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(p.complete, 1), min(p.begun, 1)
}
