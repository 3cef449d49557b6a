package client

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
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

// computes is the time limit for tasks that write nothing to end after an interrupt.
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
	sent := make(chan struct{})
	return func(ctx context.Context) error {
		select {
		case <-sent:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func() { close(sent) }
}

func (*goroutines) Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// A client that ends waits for its disk for at most diskShutdown plus the time of a disk that writes
// core.SlowHash bytes per second, and at most longestShutdown in total. A working disk needs less.
const (
	diskShutdown    = 3 * time.Second
	longestShutdown = time.Minute
)

// shutdown ends a client: it waits for tasks and logs what is lost.
type shutdown struct {
	own         *goroutines
	saver       *keep.Saver
	copies      *models.Copies
	log         *slog.Logger
	interrupted <-chan struct{} // closed when the client is interrupted
	hangs       func()          // called when wait abandons writes to the disk; may be nil
	leaves      func()          // called when wait abandons tasks that write nothing; may be nil

	gaveUp    bool
	computing bool // tasks that write nothing are still running
}

// close waits, and reports whether all tasks have ended. If only tasks that write nothing are left,
// it calls leaves.
func (s *shutdown) close() bool {
	ended := s.wait() && !s.computing
	if s.computing && !s.gaveUp {
		s.log.Info("this client ends without waiting for a computation", "tasks", s.own.open.Load())
		if s.leaves != nil {
			s.leaves()
		}
	}
	return ended
}

// wait waits for all tasks to end. After an interrupt it soon abandons tasks that write nothing,
// such as the loading of a large model. If a disk does not respond, it abandons the tasks that wait
// for the disk, and logs the models that are missing there. It reports whether everything is on the
// disk.
func (s *shutdown) wait() bool {
	if s.gaveUp {
		return false
	}
	steps, bytes := s.unwritten()
	limit := min(diskShutdown+time.Duration(bytes/core.SlowHash)*time.Second, longestShutdown)
	switch s.own.ended(s.interrupted, limit, func() {
		s.log.Info("waiting for the disk; a second Ctrl-C ends this client at once", "dir", s.saver.Folder.Dir, "unsaved_steps", steps, "limit", limit)
	}) {
	case allEnded:
		return true
	case onlyComputing:
		s.computing = true
		return true
	}
	s.gaveUp = true
	s.log.Error("the disk does not answer: this client ends without waiting for it", "dir", s.saver.Folder.Dir,
		"unsaved_steps", steps, "newest_saved_step", s.saver.Wrote())
	if s.hangs != nil {
		s.hangs()
	}
	return false
}

// unwritten returns the steps of the models that are being written to the disk, and the total bytes that
// are being written.
func (s *shutdown) unwritten() (steps []uint32, bytes int) {
	steps, bytes = s.saver.Unwritten()
	copies := s.copies.Unwritten()
	return append(steps, copies...), bytes + len(copies)*s.copies.Bytes
}

// sayLoss saves what can still be saved. It logs the loss if this client, with newest as its newest
// step, was the last one to leave the run.
func (s *shutdown) sayLoss(v *view, newest uint32) {
	saved := make(chan uint32, 1)
	s.own.Run(func() func() {
		_ = s.own.work.AtDisk(func() error {
			s.saver.SaveNow()
			saved <- max(s.saver.OnDisk(v.state), s.copies.OnDisk(v.state))
			return nil
		})
		return func() {}
	})
	if !s.wait() {
		return
	}
	if loss := v.loss(newest, <-saved); loss != "" {
		s.log.Warn(loss)
	}
}
