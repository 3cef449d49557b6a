package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/cmd/internal/telemetry"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker/otlp/otlptest"
	"github.com/psyche-go/psyche/record/event"
)

func TestEverythingIsSent(t *testing.T) {
	c := otlptest.Start(t)
	var own bytes.Buffer
	base := slog.New(slog.NewTextHandler(&own, nil))
	flags := telemetry.Flags{
		OltpMetricsURL: c.URL + "/v1/metrics", OltpTracingURL: c.URL + "/v1/traces", OltpLogsURL: c.URL + "/v1/logs",
		OltpAuthHeader: "secret\n", OltpReportInterval: 1e-9, // ends as a file of a secret store does
	}
	sent, err := flags.Start(t.Context(), "service", map[string]string{"run_id": "r"}, base, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	events, board := event.Unwritten(), metrics.New()
	events.Watch(board.See)
	sent.Watch("r", events)
	if err := sent.Board(t.Context(), board); err != nil {
		t.Fatal(err)
	}
	sent.Logger().Info("hello")
	if err := events.Append(event.Trained{Step: 1, Loss: 2, Seconds: 1}); err != nil {
		t.Fatal(err)
	}
	sent.Close()
	if f := c.Metrics(); f["psyche_train_loss"] != 2 {
		t.Errorf("metrics %v", f)
	}
	if lines := c.Lines(); len(lines) != 1 || lines[0].Text != "hello" || !strings.Contains(own.String(), "hello") {
		t.Errorf("lines %v, own %s", lines, own.String())
	}
	if spans := c.Spans(); len(spans) != 1 || spans[0].Name != "train" {
		t.Errorf("spans %v", spans)
	}
	if labels := c.Labels(); labels["service.name"] != "service" || labels["run_id"] != "r" || c.Header() != "secret" {
		t.Errorf("labels %v, Authorization %q", labels, c.Header())
	}
}

// TestNothingIsSent checks that nothing is sent if no flag names a collector.
func TestNothingIsSent(t *testing.T) {
	base := slog.New(slog.DiscardHandler)
	sent, err := telemetry.Flags{OltpReportInterval: 60}.Start(t.Context(), "service", nil, base, slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	if sent.Logger() != base {
		t.Error("a different logger although no logs are sent")
	}
	sent.Watch("r", nil)
	if err := sent.Board(t.Context(), metrics.New()); err != nil {
		t.Error(err)
	}
	sent.Close()
}

func TestRefused(t *testing.T) {
	for name, flags := range map[string]telemetry.Flags{
		"--oltp-logs-url":        {OltpLogsURL: "h:1", OltpReportInterval: 1},
		"--oltp-tracing-url":     {OltpTracingURL: "h:1", OltpLogsURL: "http://127.0.0.1:1", OltpReportInterval: 1},
		"--oltp-report-interval": {},
	} {
		begun := time.Now()
		_, err := flags.Start(t.Context(), "service", nil, slog.New(slog.DiscardHandler), slog.LevelInfo)
		golden.Message(t, name, err)
		if time.Since(begun) > 5*time.Second {
			t.Errorf("%s: took %v", name, time.Since(begun))
		}
	}
	sent, err := telemetry.Flags{OltpMetricsURL: "h:1", OltpReportInterval: 1}.Start(t.Context(), "service", nil, slog.New(slog.DiscardHandler), slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	golden.Message(t, "--oltp-metrics-url", sent.Board(t.Context(), metrics.New()))
	sent.Close()
}
