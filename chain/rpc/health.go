package rpc

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

// Pauses after failures in a row: a node that is gone is soon found to be back, one that is asked
// too often is spared.
const (
	firstPause = 200 * time.Millisecond
	gonePause  = 2 * time.Second
	busyPause  = 10 * time.Second
)

// health says how a node did lately. It is a value without a clock.
type health struct {
	failures int       // in a row
	last     error     // of the newest failure
	again    time.Time // when it may be asked again
}

// succeeded is called for every answer.
func (h *health) succeeded() { *h = health{} }

// failed is called when there was none; after is what the node asked for, longest the longest
// pause.
func (h *health) failed(now time.Time, after, longest time.Duration) {
	pause := min(firstPause<<min(h.failures, 10), longest)
	h.failures++
	if again := now.Add(max(pause, after)); again.After(h.again) {
		h.again = again
	}
}

// wait returns how long the node is to be left alone.
func (h *health) wait(now time.Time) time.Duration { return max(h.again.Sub(now), 0) }

// compare orders nodes: those that may be asked now and failed least come first.
func (h *health) compare(other health, now time.Time) int {
	return cmp.Or(cmp.Compare(h.wait(now), other.wait(now)), cmp.Compare(h.failures, other.failures))
}

// lately returns how the node did lately.
func (e *Endpoint) lately() health {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.health
}

// Resting reports whether the node failed and is to be left alone now.
func (e *Endpoint) Resting() bool {
	h := e.lately()
	return h.wait(time.Now()) > 0
}

// LastError returns why the newest request failed; nil when it did not.
func (e *Endpoint) LastError() error { return e.lately().last }

// note remembers how a call ended. What the caller broke off says nothing.
func (e *Endpoint) note(ctx context.Context, err error) {
	refused, answered := errors.AsType[*Error](err)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil, answered && !refused.ofNode():
		e.health.succeeded()
	case errors.Is(ctx.Err(), context.Canceled):
	default:
		after, longest := time.Duration(0), gonePause
		if busy, ok := errors.AsType[*busyError](err); ok {
			after, longest = busy.after, busyPause
		}
		e.health.failed(time.Now(), after, longest)
		e.health.last = err
	}
}

// rest waits until the node may be asked again.
func (e *Endpoint) rest(ctx context.Context) error {
	h := e.lately()
	wait := h.wait(time.Now())
	if wait == 0 {
		return nil
	}
	return pause.For(ctx, wait)
}
