package client

import (
	"context"
	"sync"
	"time"

	"github.com/psyche-go/psyche/client/env"
	"golang.org/x/sync/errgroup"
)

// goroutines is the Runtime of a Node that runs by itself: the wall clock, and goroutines
// that hand what they return to the loop.
type goroutines struct {
	work  *env.Tasks
	tasks sync.WaitGroup
	posts chan func() // what tasks returned for the loop
}

func newGoroutines(work *env.Tasks) *goroutines {
	return &goroutines{work: work, posts: make(chan func())}
}

func (*goroutines) Now() time.Time { return time.Now() }

func (*goroutines) WithCancel(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

func (*goroutines) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, d)
}

// Run runs a task; what it returns is dropped when the loop has ended.
func (g *goroutines) Run(task func() (proceed func())) {
	g.tasks.Go(func() {
		proceed := task()
		select {
		case g.posts <- proceed:
		case <-g.work.Work.Done():
		}
	})
}

func (*goroutines) Signal() (wait func(ctx context.Context) error, tell func()) {
	told := make(chan struct{})
	return func(ctx context.Context) error {
		select {
		case <-told:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func() { close(told) }
}

func (*goroutines) Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}
