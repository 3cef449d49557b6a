package rpc

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

// Pauses after consecutive failures: a node that was down is soon used again, and a node with a
// rate limit is spared.
const (
	firstPause = 200 * time.Millisecond
	gonePause  = 2 * time.Second
	busyPause  = 10 * time.Second
)

// health is the recent health of a node. It has no clock.
type health struct {
	failures int       // consecutive
	last     error     // of the newest failure
	again    time.Time // earliest time of the next request
}

// succeeded is called for every answer.
func (h *health) succeeded() { *h = health{} }

// failed is called for every failure. after is the pause that the node requested, and longest is
// the maximum pause.
func (h *health) failed(now time.Time, after, longest time.Duration) {
	pause := min(firstPause<<min(h.failures, 10), longest)
	h.failures++
	if again := now.Add(max(pause, after)); again.After(h.again) {
		h.again = again
	}
}

// wait returns the time until the next request is allowed.
func (h *health) wait(now time.Time) time.Duration { return max(h.again.Sub(now), 0) }

// compare orders nodes: first available nodes with few failures.
func (h *health) compare(other health, now time.Time) int {
	return cmp.Or(cmp.Compare(h.wait(now), other.wait(now)), cmp.Compare(h.failures, other.failures))
}

// lately returns the node's current health.
func (e *Endpoint) lately() health {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.health
}

// Resting reports whether the node failed and should not be asked now.
func (e *Endpoint) Resting() bool {
	h := e.lately()
	return h.wait(time.Now()) > 0
}

// LastError returns the error of the newest request; nil if it succeeded.
func (e *Endpoint) LastError() error { return e.lately().last }

// note records the result of a call. It ignores calls that the caller canceled.
func (e *Endpoint) note(ctx context.Context, err error) {
	refused, answered := errors.AsType[*nodeError](err)
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
