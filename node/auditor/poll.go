package auditor

import (
	"context"
	"time"

	"github.com/psyche-go/psyche/node/env"
)

// Pauses between two requests for the same data. They grow from leastPause to longestPause.
const (
	leastPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

const (
	requestTimeout = 5 * time.Second        // for one request to one peer
	busyPause      = 200 * time.Millisecond // pause after a recomputation took too long
)

// poll repeats a request until it is answered, one attempt at a time.
type poll struct {
	requests int
	first    time.Time // time of the first request
	again    time.Time // earliest time of the next request
	flying   bool
}

// due reports whether a request would be sent now.
func (p *poll) due(now time.Time) bool { return !p.flying && !now.Before(p.again) }

// ask sends a request, unless one is in flight or the pause after the last one is not over. question
// runs concurrently with the loop. The loop then runs the function that question returned.
func (p *poll) ask(tasks *env.Tasks, limit time.Duration, question func(ctx context.Context) (answered func())) {
	if !p.due(tasks.Now()) {
		return
	}
	if p.requests == 0 {
		p.first = tasks.Now()
	}
	p.flying = true
	p.requests++
	tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := tasks.WithTimeout(ctx, limit)
		defer cancel()
		answered := question(ctx)
		return func() {
			p.flying = false
			p.again = tasks.Now().Add(min(leastPause<<min(p.requests-1, 10), longestPause))
			answered()
		}
	})
}
