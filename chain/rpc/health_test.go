package rpc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestNodeRestsAsLongAsItRequests checks that a node is not used for exactly the time that it requested.
func TestNodeRestsAsLongAsItRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Endpoint{}
		e.note(t.Context(), &busyError{after: 30 * time.Second})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := e.rest(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if err := e.rest(t.Context()); err != nil || time.Since(begin) != 30*time.Second || e.Resting() {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		cancelled, cancelNow := context.WithCancel(t.Context())
		cancelNow()
		if e.note(cancelled, context.Canceled); e.Resting() {
			t.Error("a call cancelled by its caller counts as a failure")
		}
	})
}
