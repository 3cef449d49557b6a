package main

import (
	"log/slog"

	"github.com/psyche-go/psyche/config"
	"github.com/psyche-go/psyche/coordinator"
)

// serverIdleFlags are flags of the original that have no meaning here, or not yet.
type serverIdleFlags struct {
	Tui            bool   `negatable:"" help:"Changes nothing: the server has no display; it logs (--log), and shows itself at --http-addr."`
	OltpAuthHeader string `hidden:"" env:"OLTP_AUTH_HEADER" placeholder:"HEADER" help:"Changes nothing yet: nothing is sent by OpenTelemetry."`
	OltpMetricsURL string `name:"oltp-metrics-url" hidden:"" env:"OLTP_METRICS_URL" placeholder:"URL" help:"Changes nothing yet: nothing is sent by OpenTelemetry."`
	OltpTracingURL string `name:"oltp-tracing-url" hidden:"" env:"OLTP_TRACING_URL" placeholder:"URL" help:"Changes nothing yet: nothing is sent by OpenTelemetry."`
	OltpLogsURL    string `name:"oltp-logs-url" hidden:"" env:"OLTP_LOGS_URL" placeholder:"URL" help:"Changes nothing yet: nothing is sent by OpenTelemetry."`
}

// warn says which of the flags that were given change nothing, and why.
func (f serverIdleFlags) warn(logger *slog.Logger) {
	if f.Tui {
		logger.Warn("a flag changes nothing here", "flag", "--tui", "because", "the server has no display; --http-addr shows it")
	}
	if f.OltpAuthHeader+f.OltpMetricsURL+f.OltpTracingURL+f.OltpLogsURL != "" {
		logger.Warn("a flag changes nothing here", "flag", "--oltp-…", "because", "nothing is sent by OpenTelemetry yet; --http-addr has the figures at /metrics")
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
