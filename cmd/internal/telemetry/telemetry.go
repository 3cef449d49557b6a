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

// Flags select collectors. The flags have the names of the original Psyche.
type Flags struct {
	OltpMetricsURL     string  `name:"oltp-metrics-url" aliases:"otlp-metrics-url" env:"OLTP_METRICS_URL" placeholder:"URL" help:"OpenTelemetry URL for metrics, usually ending in /v1/metrics."`
	OltpTracingURL     string  `name:"oltp-tracing-url" aliases:"otlp-tracing-url" env:"OLTP_TRACING_URL" placeholder:"URL" help:"OpenTelemetry URL for traces of rounds, usually ending in /v1/traces."`
	OltpLogsURL        string  `name:"oltp-logs-url" aliases:"otlp-logs-url" env:"OLTP_LOGS_URL" placeholder:"URL" help:"OpenTelemetry URL for logs, usually ending in /v1/logs."`
	OltpAuthHeader     string  `aliases:"otlp-auth-header" env:"OLTP_AUTH_HEADER" placeholder:"HEADER" help:"Authorization header for the OpenTelemetry URLs."`
	OltpReportInterval float64 `aliases:"otlp-report-interval" env:"OLTP_REPORT_INTERVAL" default:"60" placeholder:"SECONDS" help:"Interval for sending metrics (${default})."`
}

// maxInterval limits --oltp-report-interval to a day.
const maxInterval = 24 * 3600

// flushTimeout limits the time for sending pending data at the end.
const flushTimeout = 10 * time.Second

// Telemetry is the running senders of a process.
type Telemetry struct {
	flags  Flags
	sender otlp.Collector // without an address
	logger *slog.Logger
	tracer *otlp.Tracer // nil: no traces
	stops  []otlp.Stop
}

// Start starts to send a service's logs at or above a level, and prepares the other senders. If no flag
// sets an address, Start sends nothing. The senders report their errors to logger.
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

// at returns a collector at an address.
func (t *Telemetry) at(url string) otlp.Collector {
	c := t.sender
	c.URL = url
	return c
}

// Logger returns a logger for the process's log and, if configured, the collector.
func (t *Telemetry) Logger() *slog.Logger { return t.logger }

// Watch creates traces from the events of a run.
func (t *Telemetry) Watch(runID string, events *event.Log) {
	if t.tracer != nil {
		events.Watch(t.tracer.Run(runID))
	}
}

// Board starts to push a board's metrics.
func (t *Telemetry) Board(ctx context.Context, board *metrics.Board) error {
	return t.push(func(c otlp.Collector, every time.Duration) (otlp.Stop, error) {
		return otlp.Board(ctx, board, c, every)
	})
}

// Gathered starts to push the metrics of a Prometheus gatherer.
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

// Close sends pending data, concurrently and for at most 10 seconds. It only logs errors as
// warnings, because they do not affect the process.
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
