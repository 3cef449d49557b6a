package server

import (
	"context"
	"errors"
	"time"

	"github.com/psyche-go/psyche/coordinator"
)

// leastSleep keeps a run whose clock does not get on from working all the time.
const leastSleep = time.Millisecond

// loop is the only goroutine that changes the state. It ends with ctx, or with an error
// when the journal cannot be written: then nothing may be acknowledged any more. While there is
// no room for the journal it waits.
//
// It works when an action came, when a connection came or went, and when something is due. In
// between it shows every Beat that it is alive, and looks whether the clock was set.
func (h *host) loop(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for started := false; ; started = true {
		var group []request
		work := true
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			work = !started || h.untilDue(time.Now()) <= 0
		case <-h.registry.changed:
		case r := <-h.requests:
			group = h.collect(r)
		}
		if work {
			if err := h.step(ctx, group); errors.Is(err, errStopsWhileFull) {
				return nil // what was not acknowledged is not kept
			} else if err != nil {
				return err
			}
		}
		h.alive()
		timer.Reset(max(leastSleep, min(h.untilDue(time.Now()), h.options.Beat)))
	}
}

// untilDue returns how long nothing is due unless somebody acts, connects or leaves: no
// tick, no withdrawal, and nothing to publish that had to wait.
func (h *host) untilDue(now time.Time) time.Duration {
	sleep := time.Duration(1<<63 - 1)
	wakeAt := func(at time.Time) { sleep = min(sleep, at.Sub(now)) }
	if !h.publishAt.IsZero() {
		wakeAt(h.publishAt)
	}
	if h.withdraws() {
		for _, since := range h.gone {
			wakeAt(since.Add(h.options.WithdrawGrace))
		}
	}
	if !h.holdUntil.IsZero() {
		wakeAt(h.holdUntil)
		return sleep
	}
	clock := h.options.Now()
	if at, ok := h.state.Due(clock); ok {
		left := min(at-clock, coordinator.MaxTime) // which fits into a Duration
		sleep = min(sleep, time.Duration(left)*time.Millisecond)
	}
	return sleep
}

// withdraws reports whether the host withdraws participants whose connection is gone.
func (h *host) withdraws() bool {
	return h.options.WithdrawGrace >= 0 && h.state.RunState != coordinator.Finished
}

// steadyClock returns a clock that shows start's Unix time in milliseconds and goes on by the
// system's monotonic clock.
func steadyClock(start time.Time) func() uint64 {
	return func() uint64 { return uint64(max(0, start.Add(time.Since(start)).UnixMilli())) }
}
