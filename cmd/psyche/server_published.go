package main

import (
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

// setWarmup replaces the maximum Warmup time of a run with --init-warmup-time.
func (c serverRun) setWarmup(run *config.Run) error {
	if c.InitWarmupTime == 0 {
		return nil
	}
	if !(c.InitWarmupTime > 0 && c.InitWarmupTime <= maxSeconds) {
		return usagef("--init-warmup-time is %v: want 0 to %d seconds", c.InitWarmupTime, maxSeconds)
	}
	run.Config.WarmupTime = uint64(seconds(c.InitWarmupTime).Milliseconds())
	if _, err := run.CoordinatorState(coordinator.ClientID{}); err != nil {
		return usagef("--init-warmup-time %v: %w", c.InitWarmupTime, err)
	}
	return nil
}
