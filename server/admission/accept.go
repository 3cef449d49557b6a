package admission

import (
	"context"
	"log/slog"
	"time"
)

// PauseAccepting waits a moment after a failed Accept, for instance when the process has
// no file descriptor left.
func PauseAccepting(ctx context.Context, logger *slog.Logger, err error) {
	if ctx.Err() != nil {
		return
	}
	logger.Error("accepting a connection failed", "error", err)
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
