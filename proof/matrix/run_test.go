package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestStandstill has slow steps: the run continues as long as there are new steps, however long
// they take.
func TestStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, within, end := withPatience(t.Context())
		defer end()
		for step := range uint32(5) {
			time.Sleep(standstill - time.Second)
			within.saw(step + 1)
		}
		time.Sleep(standstill - time.Second)
		if err := context.Cause(ctx); err != nil {
			t.Errorf("while it got further: %v", err)
		}
		within.saw(5)
		within.saw(4)
		time.Sleep(time.Second)
		synctest.Wait()
		if err := context.Cause(ctx); err == nil {
			t.Error("the stopped process continues")
		}
	})
}
