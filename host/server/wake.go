package server

import (
	"context"
	"errors"
	"time"
)

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
			work = !started || h.core.Due(h.now()) <= 0
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
		timer.Reset(h.core.Sleep(h.now(), h.server.options.Beat))
	}
}

// steadyClock returns a clock that shows start's Unix time in milliseconds and goes on by the
// system's monotonic clock.
func steadyClock(start time.Time) func() uint64 {
	return func() uint64 { return uint64(max(0, start.Add(time.Since(start)).UnixMilli())) }
}
