package metrics

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves the board: a JSON object at /, Prometheus format at /metrics.
func (b *Board) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(b, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		values := map[string]any{}
		for name, value := range b.Values() {
			values[name] = value
			if math.IsNaN(value) || math.IsInf(value, 0) {
				values[name] = nil // not representable in JSON
			}
		}
		_ = json.NewEncoder(w).Encode(values) // fails if the reader has disconnected
	})
	return mux
}

// Describe implements prometheus.Collector. It sends nothing, because the set of metrics changes
// over time.
func (b *Board) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It omits metrics of single tensors.
func (b *Board) Collect(to chan<- prometheus.Metric) {
	values := b.Values()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if task, ok := strings.CutPrefix(name, "eval/"); ok {
			task, metric, _ := strings.Cut(task, "/")
			desc := prometheus.NewDesc("psyche_client_eval", "Score of the model in a task.", []string{"task", "metric"}, nil)
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, values[name], task, metric)
			continue
		}
		desc := prometheus.NewDesc("psyche_client_"+strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(name), "The metric "+name+" of trackers.", nil, nil)
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, values[name])
	}
}
