package otlp

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/sdk/log"
)

// maxLogValue limits a value of a log line, in characters.
const maxLogValue = 4096

// Logs returns a handler that sends records at or above a level.
func Logs(ctx context.Context, c Collector, level slog.Leveler) (slog.Handler, Stop, error) {
	if err := c.check(); err != nil {
		return nil, nil, err
	}
	exporter, err := otlploghttp.New(ctx, otlploghttp.WithEndpointURL(c.URL), otlploghttp.WithTimeout(timeout), otlploghttp.WithHeaders(c.headers()))
	if err != nil {
		return nil, nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	provider := log.NewLoggerProvider(
		log.WithProcessor(log.NewBatchProcessor(exporter)), log.WithResource(c.resource()), log.WithAttributeValueLengthLimit(maxLogValue),
	)
	return leveled{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(provider)), level}, provider.Shutdown, nil
}

// leveled is a handler with a minimum level.
type leveled struct {
	slog.Handler
	level slog.Leveler
}

// Enabled implements slog.Handler.
func (l leveled) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level.Level() }

// WithAttrs implements slog.Handler.
func (l leveled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return leveled{l.Handler.WithAttrs(attrs), l.level}
}

// WithGroup implements slog.Handler.
func (l leveled) WithGroup(name string) slog.Handler {
	return leveled{l.Handler.WithGroup(name), l.level}
}
