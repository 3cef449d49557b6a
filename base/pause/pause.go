// Package pause waits.
package pause

import (
	"context"
	"time"
)

// For returns nil after a time, or the cause of ctx as soon as it ends.
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
