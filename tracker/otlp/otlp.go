// Package otlp pushes the figures of a metrics.Board to an OpenTelemetry collector, over HTTP,
// from time to time, with OpenTelemetry's own library.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/psyche-go/psyche/metrics"
)

// Options say where figures go.
type Options struct {
	URL    string            // of the collector's metrics, whole: it probably ends in /v1/metrics
	Header string            // value of the Authorization header; empty: none
	Every  time.Duration     // more than 0
	Labels map[string]string // of everything that is sent
	Logger *slog.Logger
}

// timeout bounds one push.
const timeout = 10 * time.Second

// Start begins to push a board's figures. What it returns pushes a last time and ends that.
func Start(ctx context.Context, board *metrics.Board, o Options) (stop func(context.Context) error, err error) {
	if u, err := url.Parse(o.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("address %q of a collector: want http:// or https://", o.URL)
	}
	if o.Every <= 0 {
		return nil, errors.New("the time between two reports has to be more than 0")
	}
	options := []otlpmetrichttp.Option{otlpmetrichttp.WithEndpointURL(o.URL), otlpmetrichttp.WithTimeout(timeout)}
	if o.Header != "" {
		options = append(options, otlpmetrichttp.WithHeaders(map[string]string{"Authorization": o.Header}))
	}
	exporter, err := otlpmetrichttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	tellErrors(o.Logger)
	labels := []attribute.KeyValue{attribute.String("service.name", "psyche-client"), attribute.String("service.namespace", "psyche")}
	for _, name := range slices.Sorted(maps.Keys(o.Labels)) {
		labels = append(labels, attribute.String(name, o.Labels[name]))
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithInterval(o.Every), metric.WithTimeout(timeout), metric.WithProducer(producer{board}))
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(resource.NewSchemaless(labels...)))
	return provider.Shutdown, nil
}

// tellErrors has the library's errors logged, once in a while: it pushes again by itself.
func tellErrors(logger *slog.Logger) {
	var last atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		now := time.Now().Unix()
		if before := last.Load(); now-before >= 60 && last.CompareAndSwap(before, now) {
			logger.Warn("figures cannot be sent by OpenTelemetry", "err", err)
		}
	}))
}

// producer gives the library the board's figures.
type producer struct{ board *metrics.Board }

// Produce implements metric.Producer.
func (p producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := time.Now()
	values := p.board.Values()
	scope := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: "psyche"}}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		point := metricdata.DataPoint[float64]{Time: now, Value: values[name]}
		scope.Metrics = append(scope.Metrics, metricdata.Metrics{
			Name: "psyche_" + strings.NewReplacer("/", "_", ".", "_").Replace(name),
			Data: metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{point}},
		})
	}
	return []metricdata.ScopeMetrics{scope}, nil
}
