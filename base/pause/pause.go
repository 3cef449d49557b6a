// Package pause implements pauses between attempts: a sleep that a context can interrupt (For), and
// the pause that an HTTP server requests (Requested).
package pause

import (
	"context"
	"time"
)

// For waits for d and returns nil. If ctx ends first, it returns the cause at once.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
