// Package otlptest implements an OpenTelemetry collector for tests, which stores what it receives.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collected "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxBody limits a request.
const maxBody = 16 << 20

// Span is a part of a trace.
type Span struct {
	Name, Trace, ID, Parent string
	Seconds                 float64
	Labels                  map[string]string
	Notes                   []string // events within the span
	Failed                  bool
}

// Line is a line of a log.
type Line struct {
	Level, Text string
	Labels      map[string]string
}

// Collector accepts all data at /v1/metrics, /v1/logs and /v1/traces.
type Collector struct {
	URL string // base URL, without a path

	mu     sync.Mutex
	values map[string]float64
	labels map[string]string
	lines  []Line
	spans  []Span
	header string
}

// Start starts a Collector, which runs until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{values: map[string]float64{}, labels: map[string]string{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Errorf("%s: %v", r.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Metrics returns the newest values, by name.
func (c *Collector) Metrics() map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values
}

// Labels returns the labels of all senders.
func (c *Collector) Labels() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.labels
}

// Lines returns the received log lines.
func (c *Collector) Lines() []Line {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

// Spans returns the received spans.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

// Header returns the Authorization header of the newest request.
func (c *Collector) Header() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.header
}

func (c *Collector) take(r *http.Request) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(r.Body); err != nil {
			return err
		}
	}
	text, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header = r.Header.Get("Authorization")
	switch r.URL.Path {
	case "/v1/metrics":
		return c.takeMetrics(text)
	case "/v1/logs":
		return c.takeLines(text)
	case "/v1/traces":
		return c.takeSpans(text)
	}
	return fmt.Errorf("the collector has no endpoint %s", r.URL.Path)
}

func (c *Collector) takeMetrics(text []byte) error {
	var request collected.ExportMetricsServiceRequest
	if err := proto.Unmarshal(text, &request); err != nil {
		return err
	}
	for _, resource := range request.GetResourceMetrics() {
		read(c.labels, resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeMetrics() {
			for _, m := range scope.GetMetrics() {
				c.values[m.GetName()] = value(m)
			}
		}
	}
	return nil
}

// value returns the value of the first data point.
func value(m *metrics.Metric) float64 {
	points := m.GetGauge().GetDataPoints()
	if sum := m.GetSum(); sum != nil {
		points = sum.GetDataPoints()
	}
	if h := m.GetHistogram().GetDataPoints(); len(h) > 0 {
		return float64(h[0].GetCount())
	}
	if len(points) == 0 {
		return 0
	}
	return points[0].GetAsDouble()
}

func (c *Collector) takeLines(text []byte) error {
	var request logs.ExportLogsServiceRequest
	if err := proto.Unmarshal(text, &request); err != nil {
		return err
	}
	for _, resource := range request.GetResourceLogs() {
		read(c.labels, resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				line := Line{Level: record.GetSeverityText(), Text: record.GetBody().GetStringValue(), Labels: map[string]string{}}
				read(line.Labels, record.GetAttributes())
				c.lines = append(c.lines, line)
			}
		}
	}
	return nil
}

func (c *Collector) takeSpans(text []byte) error {
	var request traces.ExportTraceServiceRequest
	if err := proto.Unmarshal(text, &request); err != nil {
		return err
	}
	for _, resource := range request.GetResourceSpans() {
		read(c.labels, resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := Span{
					Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Seconds: float64(s.GetEndTimeUnixNano()-s.GetStartTimeUnixNano()) / 1e9, Labels: map[string]string{},
					Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR,
				}
				read(span.Labels, s.GetAttributes())
				for _, note := range s.GetEvents() {
					span.Notes = append(span.Notes, note.GetName())
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	return nil
}

// read adds attributes to labels.
func read(labels map[string]string, attributes []*common.KeyValue) {
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			labels[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			labels[a.GetKey()] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			labels[a.GetKey()] = fmt.Sprint(v.DoubleValue)
		}
	}
}
