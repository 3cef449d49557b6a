package otlp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker/otlp"
	"github.com/psyche-go/psyche/face/tracker/otlp/otlptest"
	"github.com/psyche-go/psyche/record/event"
)

// sender returns a collector at a URL, with the settings that every test uses.
func sender(url string) otlp.Collector {
	return otlp.Collector{
		URL: url, Header: "Bearer secret", Service: "psyche-client", Labels: map[string]string{"run_id": "r"},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func TestMetricsArePushed(t *testing.T) {
	c := otlptest.Start(t)
	board := metrics.New()
	board.See(event.Event{Time: time.Now(), Body: event.Gradient{Step: 1, LR: 0.5, Norm: 3}})
	stop, err := otlp.Board(t.Context(), board, sender(c.URL+"/v1/metrics"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if labels := c.Labels(); labels["run_id"] != "r" || labels["service.name"] != "psyche-client" || c.Header() != "Bearer secret" {
		t.Errorf("labels %v, Authorization %q", labels, c.Header())
	}
	if f := c.Metrics(); f["psyche_train_lr"] != 0.5 || f["psyche_train_grad_norm"] != 3 {
		t.Errorf("metrics %v", f)
	}

	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "psyche_server_sent_bytes_total", Help: "x"})
	registry.MustRegister(counter)
	counter.Add(7)
	if stop, err = otlp.Gathered(t.Context(), registry, sender(c.URL+"/v1/metrics"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f := c.Metrics(); f["psyche_server_sent_bytes_total"] != 7 {
		t.Errorf("metrics %v", f)
	}
}

func TestLogsAreSent(t *testing.T) {
	c := otlptest.Start(t)
	handler, stop, err := otlp.Logs(t.Context(), sender(c.URL+"/v1/logs"), slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	logger := slog.New(handler)
	logger.Debug("not this")
	logger.With("a", 1).WithGroup("g").Warn("hello", "b", "two")
	logger.With("a", 1).Debug("nor this")
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := c.Lines()
	if len(lines) != 1 || lines[0].Text != "hello" || lines[0].Level != "WARN" || lines[0].Labels["a"] != "1" {
		t.Errorf("got %+v; want len(lines) == 1 and lines[0].Text == \"hello\" and lines[0].Level == \"WARN\" and lines[0].Labels[\"a\"] == \"1\"", lines)
	}
}

// TestRoundsAreTraces checks the traces of a round, of the events before and after it, and of a
// failure.
func TestRoundsAreTraces(t *testing.T) {
	c := otlptest.Start(t)
	tracer, err := otlp.Traces(t.Context(), sender(c.URL+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	see, at := tracer.Run("run"), time.Unix(1_800_000_000, 0)
	for _, body := range []event.Body{
		event.State{RunState: "Warmup", Step: 1, Epoch: 0},
		event.Ready{Step: 1, Seconds: 0.5, Source: "peers"},
		event.State{RunState: "RoundTrain", Step: 1, Members: []string{"a", "b"}, BatchSize: 4},
		event.State{RunState: "RoundTrain", Step: 1, Members: []string{"a", "b"}, BatchSize: 4, Witnesses: 1}, // nothing new
		event.Trained{Step: 1, Loss: 2.5, Tokens: 64, Seconds: 0.25},
		event.ResultSent{Step: 1},
		event.State{RunState: "RoundWitness", Step: 1, Members: []string{"a", "b"}},
		event.Rejected{Step: 1, From: "b", Reason: "size"},
		event.State{RunState: "RoundTrain", Step: 2, Members: []string{"a"}, BatchSize: 4},
		event.Audit{Step: 1, Trainer: "b", Outcome: "faulty", Seconds: 0.75},
		event.Accused{Step: 1, Client: "b", Fault: "wrong result"},
		event.Desynchronised{Step: 2, Reason: "replica differs"},
		event.State{RunState: "Cooldown", Step: 2},
	} {
		see(event.Event{Time: at, Body: body})
		at = at.Add(time.Second)
	}
	if err := tracer.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := c.Spans()
	find := func(name, step string) otlptest.Span {
		i := slices.IndexFunc(all, func(s otlptest.Span) bool { return s.Name == name && s.Labels["step"] == step })
		if i < 0 {
			t.Fatalf("no %s of step %s in %+v", name, step, all)
		}
		if all[i].Labels["run_id"] != "run" {
			t.Errorf("%s has labels %v", name, all[i].Labels)
		}
		return all[i]
	}
	if len(all) != 10 {
		t.Errorf("%d spans: %+v", len(all), all)
	}
	warmup, round, second := find("Warmup", "1"), find("round", "1"), find("round", "2")
	if warmup.Seconds != 2 || warmup.Parent != "" || find("get the model", "1").Parent != warmup.ID || find("get the model", "1").Seconds != 0.5 {
		t.Errorf("warmup %+v", warmup)
	}
	for _, name := range []string{"RoundTrain", "RoundWitness", "train"} {
		if span := find(name, "1"); span.Parent != round.ID || span.Trace != round.Trace {
			t.Errorf("%s is not of its round: %+v", name, span)
		}
	}
	if round.Seconds != 6 || round.Parent != "" || round.Failed || strings.Join(round.Notes, " ") != "result_sent rejected" || round.Labels["members"] != "2" {
		t.Errorf("round %+v", round)
	}
	if train := find("train", "1"); train.Seconds != 0.25 || train.Labels["loss"] != "2.5" || train.Labels["tokens"] != "64" {
		t.Errorf("train %+v", train)
	}
	if audit := find("audit", "1"); audit.Parent != second.ID || audit.Seconds != 0.75 || audit.Labels["outcome"] != "faulty" {
		t.Errorf("audit %+v", audit)
	}
	if second.Trace == round.Trace || !second.Failed || !slices.Contains(second.Notes, "accused") {
		t.Errorf("second round %+v", second)
	}
	find("Cooldown", "2") // open until the end
}

// TestCollectorsThatFail checks that a collector that hangs and a collector that refuses delay
// nothing.
func TestCollectorsThatFail(t *testing.T) {
	release := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer hangs.Close()
	defer close(release)
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x00garbage")) }))
	defer garbage.Close()
	for name, url := range map[string]string{"hangs": hangs.URL, "refuses": "http://127.0.0.1:1", "garbage": garbage.URL} {
		var mu sync.Mutex
		var said bytes.Buffer
		to := sender(url)
		to.Logger = slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return said.Write(b)
		}), nil))
		board, err := otlp.Board(t.Context(), metrics.New(), to, 20*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		handler, lines, err := otlp.Logs(t.Context(), to, slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		tracer, err := otlp.Traces(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}
		see, logger, begun := tracer.Run("run"), slog.New(handler), time.Now()
		for step := range uint32(20_000) { // ten times the capacity of the queues
			logger.Info("line", "step", step)
			see(event.Event{Time: begun, Body: event.Trained{Step: step}})
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s: 20,000 events and lines took %v", name, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begun = time.Now()
		var ending sync.WaitGroup
		for _, stop := range []otlp.Stop{board, lines, tracer.Stop} {
			ending.Go(func() { _ = stop(ctx) })
		}
		ending.Wait()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s: ended after %v", name, took)
		}
		cancel()
		mu.Lock()
		if strings.Contains(said.String(), "panic") {
			t.Error(said.String())
		}
		mu.Unlock()
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestBadAddresses(t *testing.T) {
	for _, url := range []string{"", "h:1", "ftp://h/v1", "http://"} {
		_, board := otlp.Board(t.Context(), metrics.New(), sender(url), time.Second)
		_, _, lines := otlp.Logs(t.Context(), sender(url), slog.LevelInfo)
		_, spans := otlp.Traces(t.Context(), sender(url))
		if board == nil || lines == nil || spans == nil {
			t.Errorf("%q was accepted: %v, %v, %v", url, board, lines, spans)
		}
	}
	if _, err := otlp.Board(t.Context(), metrics.New(), sender("http://h"), 0); err == nil {
		t.Error("no time between reports was accepted")
	}
}
