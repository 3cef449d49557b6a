package serve

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics contains the server's metrics. Their names start with psyche_data_.
type metrics struct {
	connections *prometheus.CounterVec // by result
	live        prometheus.GaugeFunc
	requests    *prometheus.CounterVec // by kind and result
	sequences   prometheus.Counter
	bytes       prometheus.Counter
	seconds     prometheus.Histogram
}

func newMetrics(live func() int) *metrics {
	options := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "psyche", Subsystem: "data", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(options(name, help)))
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(options(name, help)), labels)
	}
	return &metrics{
		connections: vector("connections_total", "Connections, by result (accepted, or the reason for refusal).", "result"),
		live: prometheus.NewGaugeFunc(prometheus.GaugeOpts(options("connections", "Connections of keys in the run.")),
			func() float64 { return float64(live()) }),
		requests:  vector("requests_total", "Requests, by kind and result (served, or the reason for refusal).", "kind", "result"),
		sequences: counter("sequences_total", "Sequences delivered."),
		bytes:     counter("sent_bytes_total", "Bytes of the sequences delivered, before TLS."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "psyche", Subsystem: "data", Name: "request_seconds",
			Help: "Time from a served request to the end of its answer.", Buckets: prometheus.ExponentialBuckets(0.001, 3, 10),
		}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.connections, m.live, m.requests, m.sequences, m.bytes, m.seconds}
}

// Describe implements prometheus.Collector.
func (s *Server) Describe(out chan<- *prometheus.Desc) {
	for _, c := range s.metrics.all() {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (s *Server) Collect(out chan<- prometheus.Metric) {
	for _, c := range s.metrics.all() {
		c.Collect(out)
	}
}
