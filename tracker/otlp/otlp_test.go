package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/metrics"
	"github.com/psyche-go/psyche/tracker/otlp"
)

func TestFiguresArePushed(t *testing.T) {
	got := make(chan *collector.ExportMetricsServiceRequest, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/some/v1/metrics" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		text, err := io.ReadAll(body)
		request := &collector.ExportMetricsServiceRequest{}
		if err == nil {
			err = proto.Unmarshal(text, request)
		}
		if err != nil {
			t.Error(err)
		}
		got <- request
	}))
	defer server.Close()
	board := metrics.New()
	board.See(event.Event{Time: time.Now(), Body: event.Gradient{Step: 1, LR: 0.5, Norm: 3}})
	stop, err := otlp.Start(t.Context(), board, otlp.Options{
		URL: server.URL + "/some/v1/metrics", Header: "Bearer secret", Every: time.Hour,
		Labels: map[string]string{"run_id": "r"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	resource := (<-got).GetResourceMetrics()[0]
	labels := map[string]string{}
	for _, label := range resource.GetResource().GetAttributes() {
		labels[label.GetKey()] = label.GetValue().GetStringValue()
	}
	figures := map[string]float64{}
	for _, m := range resource.GetScopeMetrics()[0].GetMetrics() {
		figures[m.GetName()] = m.GetGauge().GetDataPoints()[0].GetAsDouble()
	}
	if labels["run_id"] != "r" || labels["service.name"] != "psyche-client" || figures["psyche_train_lr"] != 0.5 || figures["psyche_train_grad_norm"] != 3 {
		t.Errorf("labels %v, figures %v", labels, figures)
	}
}

// TestCollectorsThatFail ends in time where the collector takes nothing.
func TestCollectorsThatFail(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	var log bytes.Buffer
	stop, err := otlp.Start(t.Context(), metrics.New(), otlp.Options{URL: server.URL, Every: 20 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := stop(ctx); err == nil || time.Since(begun) > 5*time.Second {
		t.Errorf("ended after %v with %v", time.Since(begun), err)
	}
	for _, o := range []otlp.Options{{URL: "h:1", Every: 1}, {URL: "http://h", Every: 0}} {
		if _, err := otlp.Start(t.Context(), metrics.New(), o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if strings.Contains(log.String(), "panic") {
		t.Error(log.String())
	}
}
