package sim

import (
	"context"
	"errors"
	"github.com/psyche-go/psyche/proof/sim/coroutine"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"math"
	"time"
)

// errStopped ends the tasks of a client that was killed.
var errStopped = errors.New("process was killed")

// parking is the wait of one task. The first of several events ends it.
type parking struct {
	worker *coroutine.Worker
	ctx    *taskContext
	done   bool
}

// taskContext is the context of a process's tasks. It needs no channel, because all waits happen in
// process.wait, which knows the type.
type taskContext struct {
	parent    *taskContext
	process   *process
	deadline  int64 // virtual time; 0: none
	cancelled bool
}

func (c *taskContext) Deadline() (time.Time, bool) {
	limit := c.limit()
	return scenario.ClockStart.Add(time.Duration(limit)), limit != math.MaxInt64
}

func (*taskContext) Done() <-chan struct{} { return nil }

func (*taskContext) Value(any) any { return nil }

func (c *taskContext) Err() error {
	for x := c; x != nil; x = x.parent {
		if x.cancelled {
			return context.Canceled
		}
	}
	if c.process.world.now >= c.limit() {
		return context.DeadlineExceeded
	}
	return nil
}

// limit returns the earliest deadline on the path to the root.
func (c *taskContext) limit() int64 {
	limit := int64(math.MaxInt64)
	for x := c; x != nil; x = x.parent {
		if x.deadline != 0 {
			limit = min(limit, x.deadline)
		}
	}
	return limit
}

func (c *taskContext) isUnder(other *taskContext) bool {
	for x := c; x != nil; x = x.parent {
		if x == other {
			return true
		}
	}
	return false
}

// Now implements env.Runtime.
func (p *process) Now() time.Time { return scenario.ClockStart.Add(time.Duration(p.world.now)) }

// WithCancel implements env.Runtime.
func (p *process) WithCancel(parent context.Context) (context.Context, context.CancelFunc) {
	c := &taskContext{parent: parent.(*taskContext), process: p}
	return c, func() { p.cancel(c) }
}

// WithTimeout implements env.Runtime.
func (p *process) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	c := &taskContext{parent: parent.(*taskContext), process: p, deadline: p.world.now + int64(d)}
	return c, func() { c.cancelled = true } // no task waits under it at this time
}

// cancel ends a context and wakes the tasks that wait under it.
func (p *process) cancel(c *taskContext) {
	if c.cancelled {
		return
	}
	c.cancelled = true
	for i := range p.inbox {
		if at := p.inbox[i].parking; at != nil && !at.done && at.ctx.isUnder(c) {
			p.inbox[i].at = p.world.now
			p.schedule(p.world.now)
		}
	}
}

// Run implements env.Runtime.
func (p *process) Run(task func() (proceed func())) {
	p.world.workers.Run(func() {
		if proceed := task(); p.alive {
			p.ready = append(p.ready, proceed)
		}
	})
}

// Signal implements env.Runtime.
func (p *process) Signal() (wait func(ctx context.Context) error, tell func()) {
	notified := false
	var waiting *parking
	wait = func(ctx context.Context) error {
		c := ctx.(*taskContext)
		for !notified {
			if !p.alive || p.world.workers.Closing() {
				return errStopped
			}
			if err := c.Err(); err != nil {
				return err
			}
			waiting = &parking{worker: p.world.workers.Current(), ctx: c}
			p.put(item{at: min(c.limit(), p.world.now+3600*second), parking: waiting}) // tell and cancel end it earlier
			p.park(waiting)
			if p.world.net != nil {
				p.forget(waiting)
			}
		}
		return nil
	}
	return wait, func() {
		notified = true
		if waiting == nil || waiting.done || !p.alive {
			return
		}
		if p.world.net != nil {
			at := waiting
			p.world.At(p.world.now, func() { p.resume(at) })
		} else {
			p.put(item{at: p.world.now, parking: waiting})
		}
	}
}

// Each implements env.Runtime.
func (p *process) Each(ctx context.Context, limit, count int, do func(ctx context.Context, i int) error) error {
	child := &taskContext{parent: ctx.(*taskContext), process: p}
	defer p.cancel(child)
	var first error
	var waiting *parking
	running, next := 0, 0
	for next < count && first == nil || running > 0 {
		for running < limit && next < count && first == nil {
			i := next
			next++
			running++
			p.world.workers.Run(func() {
				if err := do(child, i); err != nil && first == nil {
					first = err
					p.cancel(child)
				}
				running--
				if waiting != nil && !waiting.done && p.alive {
					p.put(item{at: p.world.now, parking: waiting})
				}
			})
		}
		if running == 0 {
			continue
		}
		if !p.alive || p.world.workers.Closing() {
			return errStopped
		}
		waiting = &parking{worker: p.world.workers.Current(), ctx: child}
		p.park(waiting)
		waiting = nil
	}
	return first
}

// wait suspends the running task until the virtual time until. If its context or its process ends
// first, it returns the reason.
func (p *process) wait(ctx context.Context, until int64) error {
	c := ctx.(*taskContext)
	if !p.alive || p.world.workers.Closing() {
		return errStopped
	}
	if err := c.Err(); err != nil {
		return err
	}
	limit := c.limit()
	at := &parking{worker: p.world.workers.Current(), ctx: c}
	p.put(item{at: min(until, limit), parking: at})
	p.park(at)
	switch {
	case !p.alive || p.world.workers.Closing():
		return errStopped
	case until > limit:
		return context.DeadlineExceeded
	}
	for x := c; x != nil; x = x.parent {
		if x.cancelled {
			return context.Canceled
		}
	}
	return nil
}

// park suspends the running task until an item with this parking is handled.
func (p *process) park(at *parking) {
	p.parked = append(p.parked, at)
	at.worker.Wait()
	at.done = true
}

// unpark resumes a task unless it was already resumed.
func (p *process) unpark(at *parking) {
	if at.done {
		return
	}
	at.done = true
	p.world.workers.Resume(at.worker)
}
