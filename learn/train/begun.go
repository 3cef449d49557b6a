package train

import "sync"

// begun is the part of a training whose computation has begun. Its methods are safe for concurrent use.
type begun struct {
	mu    sync.Mutex
	sum   float64
	steps int // local steps of the training
}

// reset begins a training.
func (b *begun) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum, b.steps = 0, 1
}

// divide states the number of local steps of the training.
func (b *begun) divide(steps int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps = steps
}

// add records that the computation of a part of a step has begun.
func (b *begun) add(share float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sum += share / float64(max(1, b.steps))
}

// part returns the part of the training, 0 to 1.
func (b *begun) part() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return min(b.sum, 1)
}
