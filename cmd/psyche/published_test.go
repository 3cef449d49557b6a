package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/cmd/internal/published"
	"github.com/psyche-go/psyche/cmd/internal/published/publishedtest"
	"github.com/psyche-go/psyche/face/tracker/otlp/otlptest"
	"github.com/psyche-go/psyche/host/server"
)

// TestPublishedCommandLines parses the command lines of this program that docs/command-lines.md
// promises.
func TestPublishedCommandLines(t *testing.T) {
	for _, line := range publishedtest.Lines(t, "../..") {
		if !slices.Contains([]string{"psyche", "psyche-centralized-server", "psyche-centralized-local-testnet", "psyche-solana-client"}, line.Program) {
			continue
		}
		var all commands
		parser, err := newParser(t.Context(), &all, console{io.Discard, io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(published.Arguments(append([]string{line.Program}, line.Args...))); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		words := strings.Join(line.Args, " ")
		paused := all.Run.SetPaused
		if all.Solana.SetPaused.RunID != "" {
			paused = all.Solana.SetPaused
		}
		if strings.HasSuffix(words, "resume") && !paused.Resume && paused.Paused != "resume" {
			t.Errorf("%s: got %+v", line, paused)
		}
		if all.Run.UpdateConfig.State == "" && all.Solana.UpdateConfig.State == "" && strings.Contains(words, "update-config") {
			t.Errorf("%s: no file", line)
		}
	}
}

// TestPublishedItems checks that the tests that docs/published.md names exist.
func TestPublishedItems(t *testing.T) {
	if shown := publishedtest.Items(t, "../.."); shown < 20 {
		t.Errorf("%d rows name a test", shown)
	}
}

// serveBriefly runs the server with additional flags for a moment and returns its log.
func serveBriefly(t *testing.T, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var log strings.Builder
	args := append([]string{"server", "run", "--state", "../../record/config/testdata/server.toml", "--server-addr", "127.0.0.1", "--log", "json"}, flags...)
	if code := run(ctx, args, console{io.Discard, &log}); code != exitOK {
		t.Errorf("%v: exit code %d\n%s", flags, code, log.String())
	}
	return log.String()
}

func TestServerTakesPublishedFlags(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if log := serveBriefly(t, "-s", port); !strings.Contains(log, "127.0.0.1:"+port) {
		t.Errorf("no port %s in\n%s", port, log)
	}
	for _, flags := range []string{"--tui", "--tui true", "--tui false", "--no-tui", "--withdraw-on-disconnect false"} {
		if log := serveBriefly(t, strings.Fields(flags)...); !strings.Contains(log, "server is listening") { // the output is not a terminal
			t.Errorf("%s: got\n%s", flags, log)
		}
	}
	saved := t.TempDir()
	serveBriefly(t, "--init-warmup-time", "7.5", "--save-state-dir", saved)
	exported, err := filepath.Glob(filepath.Join(saved, "*.journal"))
	if err != nil || len(exported) != 1 {
		t.Fatal(exported, err)
	}
	log, _, err := server.Replay(exported[0], nil)
	if err != nil || log.State.Config.WarmupTime != 7500 {
		t.Errorf("a Warmup of 7.5 s is not in the run's state: %v, %v", log, err)
	}
	if events, err := os.ReadFile(filepath.Join(saved, "events.jsonl")); err != nil || !strings.Contains(string(events), `"kind":"started"`) {
		t.Errorf("no event log next to the journal: %v\n%s", err, events)
	}
	for _, flags := range []string{"--init-warmup-time -1", "--init-warmup-time 1e12", "--init-warmup-time 100"} {
		var errs strings.Builder
		args := append([]string{"server", "run", "--state", "../../record/config/testdata/server.toml"}, strings.Fields(flags)...)
		if code := run(t.Context(), args, console{io.Discard, &errs}); code != exitUsage {
			t.Errorf("%s: exit code %d, %s", flags, code, errs.String())
		} else {
			printed(t, code, flags, errs.String())
		}
	}
}

// TestServerSends checks that a collector gets the metrics, logs and traces of a server.
func TestServerSends(t *testing.T) {
	c := otlptest.Start(t)
	serveBriefly(t, "--oltp-metrics-url", c.URL+"/v1/metrics", "--oltp-tracing-url", c.URL+"/v1/traces", "--oltp-logs-url", c.URL+"/v1/logs", "--oltp-auth-header", "secret")
	if f := c.Metrics(); f["go_goroutines"] == 0 || len(f) < 20 {
		t.Errorf("metrics %v", f)
	}
	if lines := c.Lines(); !slices.ContainsFunc(lines, func(l otlptest.Line) bool { return l.Text == "server is listening" }) {
		t.Errorf("lines %v", lines)
	}
	if spans := c.Spans(); len(spans) != 1 || spans[0].Name != "WaitingForMembers" {
		t.Errorf("spans %v", spans)
	}
	if labels := c.Labels(); labels["service.name"] != "psyche-server" || c.Header() != "secret" {
		t.Errorf("labels %v, Authorization %q", labels, c.Header())
	}
	for _, flags := range []string{"--oltp-logs-url h:1", "--oltp-metrics-url h:1", "--oltp-tracing-url h:1", "--oltp-report-interval 0"} {
		var errs strings.Builder
		args := append([]string{"server", "run", "--state", "../../record/config/testdata/server.toml", "--server-addr", "127.0.0.1"}, strings.Fields(flags)...)
		if code := run(t.Context(), args, console{io.Discard, &errs}); code != exitUsage {
			t.Errorf("%s: exit code %d, %s", flags, code, errs.String())
		} else {
			printed(t, code, flags, errs.String())
		}
	}
}

func TestManual(t *testing.T) {
	for program, want := range map[string]string{
		"psyche": "# `psyche`", "psyche-centralized-server": "# `psyche server`", "psyche-centralized-local-testnet": "# `psyche testnet`",
	} {
		var out, errs strings.Builder
		code := run(t.Context(), published.Arguments([]string{program, "print-all-help", "--markdown"}), console{&out, &errs})
		if code != exitOK || !strings.HasPrefix(out.String(), want+"\n") {
			t.Errorf("%s: exit code %d\n%s%.200s", program, code, errs.String(), out.String())
		}
		if program == "psyche" {
			publishedtest.Page(t, "../..", program, out.String())
		}
	}
}

func TestLogLevel(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "debug": "debug", "warn,psyche=debug": "debug", "psyche=error,info": "error", "trace": "debug",
		"other=debug,warn": "warn", "other=debug": "",
	} {
		if got, err := logLevel(text); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"loud", "warn,psyche=", "psyche=debug,"} {
		if got, err := logLevel(text); err == nil {
			t.Errorf("%q: got %q", text, got)
		}
	}
}

func TestExtras(t *testing.T) {
	var errs strings.Builder
	e, err := extraFlags{Log: "warn,psyche=debug", WriteLog: true, EventsDir: "events", WriteDistroData: "distro", HFToken: "t"}.extras(console{io.Discard, &errs})
	if err != nil || e.LogLevel != "debug" || !filepath.IsAbs(e.EventsDir) || !filepath.IsAbs(e.WriteDistroData) || e.HFToken != "t" {
		t.Errorf("got %+v, %v; want nil error and e.LogLevel == \"debug\" and filepath.IsAbs(e.EventsDir) and filepath.IsAbs(e.WriteDistroData) and e.HFToken == \"t\"", e, err)
	}
	if !strings.Contains(errs.String(), "--write-log") {
		t.Errorf("printed %q", errs.String())
	}
}
