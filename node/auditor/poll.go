package auditor

import (
	"context"
	"time"

	"github.com/psyche-go/psyche/node/env"
)

// Pauses between two questions for the same: they grow from the least to the longest.
const (
	leastPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

const (
	requestTimeout = 5 * time.Second        // for one question to one peer
	busyPause      = 200 * time.Millisecond // when something else needed the trainer
)

// poll is something that is asked for again and again until it is there, one question at a time.
type poll struct {
	asked  int
	first  time.Time // when it was asked for first
	again  time.Time // not before
	flying bool
}

// due reports whether a question would be asked now.
func (p *poll) due(now time.Time) bool { return !p.flying && !now.Before(p.again) }

// ask asks, unless a question is out or the last one was a moment ago. The question runs beside the
// loop; what it returns runs in the loop.
func (p *poll) ask(tasks *env.Tasks, limit time.Duration, question func(ctx context.Context) (answered func())) {
	if !p.due(tasks.Now()) {
		return
	}
	if p.asked == 0 {
		p.first = tasks.Now()
	}
	p.flying = true
	p.asked++
	tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := tasks.WithTimeout(ctx, limit)
		defer cancel()
		answered := question(ctx)
		return func() {
			p.flying = false
			p.again = tasks.Now().Add(min(leastPause<<min(p.asked-1, 10), longestPause))
			answered()
		}
	})
}
