package serve

import (
	"context"
	"sync"
	"time"
)

// precedence gives some requests priority.
type precedence struct {
	mu    sync.Mutex
	first int           // number of requests with precedence
	clear chan struct{} // closed when there are none; nil: no waiters
}

// enter starts a request with precedence. leave ends it.
func (p *precedence) enter() (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.first++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.first--; p.first == 0 && p.clear != nil {
			close(p.clear)
			p.clear = nil
		}
	}
}

// yield waits until there is no request with precedence, at most longest.
func (p *precedence) yield(ctx context.Context, longest time.Duration) {
	p.mu.Lock()
	if p.first == 0 {
		p.mu.Unlock()
		return
	}
	if p.clear == nil {
		p.clear = make(chan struct{})
	}
	clear := p.clear
	p.mu.Unlock()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-clear:
	case <-timer.C:
	case <-ctx.Done():
	}
}
