package otlp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	gathered "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/psyche-go/psyche/face/metrics"
)

// Board starts to push the metrics of a board at regular intervals.
func Board(ctx context.Context, board *metrics.Board, c Collector, every time.Duration) (Stop, error) {
	return push(ctx, boardProducer{board}, c, every)
}

// Gathered starts to push the metrics of a Prometheus gatherer at regular intervals.
func Gathered(ctx context.Context, from prometheus.Gatherer, c Collector, every time.Duration) (Stop, error) {
	return push(ctx, gathered.NewMetricProducer(gathered.WithGatherer(from)), c, every)
}

func push(ctx context.Context, from metric.Producer, c Collector, every time.Duration) (Stop, error) {
	if every <= 0 {
		return nil, errors.New("report interval: want more than 0")
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(c.URL), otlpmetrichttp.WithTimeout(timeout), otlpmetrichttp.WithHeaders(c.headers()))
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	reader := metric.NewPeriodicReader(exporter, metric.WithInterval(every), metric.WithTimeout(timeout), metric.WithProducer(from))
	return metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(c.resource())).Shutdown, nil
}

// boardProducer adapts a board to the library.
type boardProducer struct{ board *metrics.Board }

// Produce implements metric.Producer.
func (p boardProducer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := time.Now()
	values := p.board.Values()
	all := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: scope}}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		point := metricdata.DataPoint[float64]{Time: now, Value: values[name]}
		all.Metrics = append(all.Metrics, metricdata.Metrics{
			Name: "psyche_" + strings.NewReplacer("/", "_", ".", "_").Replace(name),
			Data: metricdata.Gauge[float64]{DataPoints: []metricdata.DataPoint[float64]{point}},
		})
	}
	return []metricdata.ScopeMetrics{all}, nil
}
