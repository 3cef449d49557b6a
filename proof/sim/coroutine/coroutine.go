// Package coroutine runs tasks one at a time. A task runs until it waits or ends. Then the caller
// that started or resumed it continues.
package coroutine

import "iter"

// Worker runs one task after another.
type Worker struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	task  func()
}

// Wait suspends the worker's task until the worker is resumed. Only that task may call it.
func (w *Worker) Wait() { w.yield(struct{}{}) }

// Pool is all workers of a run.
type Pool struct {
	all, idle []*Worker
	current   *Worker
	closing   bool
}

// Current returns the worker of the running task.
func (p *Pool) Current() *Worker { return p.current }

// Closing reports whether all tasks must end.
func (p *Pool) Closing() bool { return p.closing }

// Run starts a task and returns when it first waits or has ended.
func (p *Pool) Run(task func()) {
	var w *Worker
	if n := len(p.idle); n > 0 {
		w, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		w = &Worker{}
		w.next, w.stop = iter.Pull(func(yield func(struct{}) bool) {
			w.yield = yield
			for {
				w.task()
				w.task = nil
				p.idle = append(p.idle, w)
				if !yield(struct{}{}) {
					return
				}
			}
		})
		p.all = append(p.all, w)
	}
	w.task = task
	p.Resume(w)
}

// Resume continues a waiting worker until it waits again.
func (p *Pool) Resume(w *Worker) {
	previous := p.current
	p.current = w
	w.next()
	p.current = previous
}

// Close ends all tasks: waiting tasks continue, and find that the pool is closing.
func (p *Pool) Close() {
	p.closing = true
	for _, w := range p.all {
		w.stop()
	}
}
