package main

import (
	"log/slog"

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
)

// serverIdleFlags are flags of the original that have no meaning here, or not yet.
type serverIdleFlags struct {
	Tui bool `negatable:"" help:"Changes nothing: the server has no display; it logs (--log), and shows itself at --http-addr."`
}

// warn says which of the flags that were given change nothing, and why.
func (f serverIdleFlags) warn(logger *slog.Logger) {
	if f.Tui {
		logger.Warn("a flag changes nothing here", "flag", "--tui", "because", "the server has no display; --http-addr shows it")
	}
}

// setWarmup replaces the longest Warmup of a run by --init-warmup-time.
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
