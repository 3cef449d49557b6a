package server

import (
	"context"
	"errors"
	"time"
)

// loop is the only goroutine that changes the state. It ends with ctx, or with an error if the
// journal cannot be written, because then nothing may be acknowledged any more. While the disk is
// full, it waits.
//
// It wakes when an action arrives, when a client connects or disconnects, and when something is due. In
// between, it shows at every Beat that it is alive, and checks whether the clock was set.
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
				return nil // unacknowledged actions are dropped
			} else if err != nil {
				return err
			}
		}
		h.alive()
		timer.Reset(h.core.Sleep(h.now(), h.server.options.Beat))
	}
}

// steadyClock returns a clock that starts at start's Unix time in milliseconds and advances with
// the system's monotonic clock.
func steadyClock(start time.Time) func() uint64 {
	return func() uint64 { return uint64(max(0, start.Add(time.Since(start)).UnixMilli())) }
}
