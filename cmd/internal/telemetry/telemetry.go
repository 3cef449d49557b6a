package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/psyche-go/psyche/base/secret"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker/otlp"
	"github.com/psyche-go/psyche/record/event"
)

// Flags name collectors, as the original does.
type Flags struct {
	OltpMetricsURL     string  `name:"oltp-metrics-url" aliases:"otlp-metrics-url" env:"OLTP_METRICS_URL" placeholder:"URL" help:"OpenTelemetry URL for metrics, usually ending in /v1/metrics."`
	OltpTracingURL     string  `name:"oltp-tracing-url" aliases:"otlp-tracing-url" env:"OLTP_TRACING_URL" placeholder:"URL" help:"OpenTelemetry URL for traces of rounds, usually ending in /v1/traces."`
	OltpLogsURL        string  `name:"oltp-logs-url" aliases:"otlp-logs-url" env:"OLTP_LOGS_URL" placeholder:"URL" help:"OpenTelemetry URL for logs, usually ending in /v1/logs."`
	OltpAuthHeader     string  `aliases:"otlp-auth-header" env:"OLTP_AUTH_HEADER" placeholder:"HEADER" help:"Authorization header for the OpenTelemetry URLs."`
	OltpReportInterval float64 `aliases:"otlp-report-interval" env:"OLTP_REPORT_INTERVAL" default:"60" placeholder:"SECONDS" help:"Interval for sending metrics (${default})."`
}

// maxInterval bounds --oltp-report-interval: a day.
const maxInterval = 24 * 3600

// flushTimeout is how long collectors may take at the end for what they have not taken yet.
const flushTimeout = 10 * time.Second

// Telemetry is what is on its way.
type Telemetry struct {
	flags  Flags
	sender otlp.Collector // without an address
	logger *slog.Logger
	tracer *otlp.Tracer // nil: no traces
	stops  []otlp.Stop
}

// Start begins to send the logs of a service that have a level or more, and makes ready for
// the rest. Without flags nothing is sent. The logger has what cannot be sent.
func (f Flags) Start(ctx context.Context, service string, labels map[string]string, logger *slog.Logger, level slog.Leveler) (*Telemetry, error) {
	t := &Telemetry{flags: f, logger: logger, sender: otlp.Collector{Header: secret.Trim(f.OltpAuthHeader), Service: service, Labels: labels, Logger: logger}}
	if !(f.OltpReportInterval > 0) {
		return nil, fmt.Errorf("--oltp-report-interval is %v: want more than 0 seconds", f.OltpReportInterval)
	}
	if f.OltpLogsURL != "" {
		handler, stop, err := otlp.Logs(ctx, t.at(f.OltpLogsURL), level)
		if err != nil {
			return nil, fmt.Errorf("--oltp-logs-url: %w", err)
		}
		t.logger = slog.New(slog.NewMultiHandler(logger.Handler(), handler))
		t.stops = append(t.stops, stop)
	}
	if f.OltpTracingURL != "" {
		tracer, err := otlp.Traces(ctx, t.at(f.OltpTracingURL))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--oltp-tracing-url: %w", err), t.close())
		}
		t.tracer = tracer
		t.stops = append(t.stops, tracer.Stop)
	}
	return t, nil
}

// at is a collector at an address.
func (t *Telemetry) at(url string) otlp.Collector {
	c := t.sender
	c.URL = url
	return c
}

// Logger logs to where the process does, and to the collector if there is one for that.
func (t *Telemetry) Logger() *slog.Logger { return t.logger }

// Watch makes traces of the events of a run.
func (t *Telemetry) Watch(runID string, events *event.Log) {
	if t.tracer != nil {
		events.Watch(t.tracer.Run(runID))
	}
}

// Board begins to push a board's figures.
func (t *Telemetry) Board(ctx context.Context, board *metrics.Board) error {
	return t.push(func(c otlp.Collector, every time.Duration) (otlp.Stop, error) {
		return otlp.Board(ctx, board, c, every)
	})
}

// Gathered begins to push what Prometheus could read.
func (t *Telemetry) Gathered(ctx context.Context, from prometheus.Gatherer) error {
	return t.push(func(c otlp.Collector, every time.Duration) (otlp.Stop, error) {
		return otlp.Gathered(ctx, from, c, every)
	})
}

func (t *Telemetry) push(begin func(otlp.Collector, time.Duration) (otlp.Stop, error)) error {
	if t.flags.OltpMetricsURL == "" {
		return nil
	}
	every := time.Duration(min(t.flags.OltpReportInterval, maxInterval) * float64(time.Second))
	stop, err := begin(t.at(t.flags.OltpMetricsURL), max(every, time.Millisecond))
	if err != nil {
		return fmt.Errorf("--oltp-metrics-url: %w", err)
	}
	t.stops = append(t.stops, stop)
	return nil
}

// Close sends what waits, all at once and for 10 seconds at most. That a collector takes
// nothing is a warning: it costs the process nothing, at its end neither.
func (t *Telemetry) Close() {
	if err := t.close(); err != nil {
		t.sender.Logger.Warn("some OpenTelemetry data was not sent", "err", err)
	}
}

func (t *Telemetry) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	errs := make([]error, len(t.stops))
	var stopping sync.WaitGroup
	for i, stop := range t.stops {
		stopping.Go(func() { errs[i] = stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}
