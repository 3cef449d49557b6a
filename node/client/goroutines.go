package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/node/env"
	"golang.org/x/sync/errgroup"
)

// goroutines is the Runtime of a Node whose caller does not supply one. It uses the wall clock, and
// runs tasks in goroutines, which pass their continuations to the loop.
type goroutines struct {
	work  *env.Tasks
	tasks sync.WaitGroup
	open  atomic.Int64     // tasks
	posts chan func()      // returned by tasks, for the loop
	clock func() time.Time // for tests; nil: time.Now
}

func newGoroutines(work *env.Tasks) *goroutines {
	return &goroutines{work: work, posts: make(chan func())}
}

func (g *goroutines) Now() time.Time {
	if g.clock != nil {
		return g.clock()
	}
	return time.Now()
}

func (*goroutines) WithCancel(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

func (*goroutines) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, d)
}

// Run runs a task. After the end of the loop, it drops the continuation.
func (g *goroutines) Run(task func() (proceed func())) {
	g.open.Add(1)
	g.tasks.Go(func() {
		defer g.open.Add(-1)
		proceed := task()
		select {
		case g.posts <- proceed:
		case <-g.work.Work.Done():
		}
	})
}

// computes is the time that tasks without writes have to end after an interrupt.
const computes = 300 * time.Millisecond

// waitResult is the result of waiting for all tasks.
type waitResult int

const (
	allEnded      waitResult = iota
	diskHangs                // tasks wait for a disk that does not respond
	onlyComputing            // after an interrupt, only tasks that write nothing are left
)

// ended waits until all tasks have ended. If only tasks that wait for a disk are left, it calls say,
// and waits for them for at most limit. After interrupted is closed, it waits only briefly for tasks
// that write nothing.
func (g *goroutines) ended(interrupted <-chan struct{}, limit time.Duration, say func()) waitResult {
	all := make(chan struct{})
	go func() {
		g.tasks.Wait()
		close(all)
	}()
	looks := time.NewTicker(heartbeat)
	defer looks.Stop()
	var since time.Time
	var patience <-chan time.Time // for tasks that write nothing
	impatient := false
	for {
		select {
		case <-all:
			return allEnded
		case <-interrupted:
			interrupted, patience = nil, time.After(computes)
		case <-patience:
			impatient = true
		case now := <-looks.C:
			disk := g.work.WaitForDisk()
			computing := g.open.Load() > disk
			switch {
			case computing && impatient && disk == 0:
				return onlyComputing
			case computing && !impatient:
				since = time.Time{}
			case since.IsZero():
				since = now
				say()
			case now.Sub(since) >= limit:
				return diskHangs
			}
		}
	}
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
