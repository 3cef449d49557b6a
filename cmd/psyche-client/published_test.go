package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/cmd/internal/published"
	"github.com/psyche-go/psyche/cmd/internal/published/publishedtest"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/files/hub/hubtest"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/event"
)

// parsed reads a command line without running it.
func parsed(t *testing.T, program string, args ...string) (commands, error) {
	t.Helper()
	var all commands
	parser, err := newParser(t.Context(), &all, terminal{io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(published.Arguments(append([]string{program}, args...)))
	return all, err
}

// TestPublishedCommandLines parses the command lines of this program that docs/command-lines.md
// promises.
func TestPublishedCommandLines(t *testing.T) {
	for _, line := range publishedtest.Lines(t, "../..") {
		if line.Program != "psyche-client" && line.Program != "psyche-centralized-client" {
			continue
		}
		if _, err := parsed(t, line.Program, line.Args...); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestPublishedVariables sets every flag of train that has a published variable by this variable.
func TestPublishedVariables(t *testing.T) {
	values := map[string]string{
		"iroh-relay": "disabled", "iroh-discovery": "local", "logs": "json", "prompt-task": "true", "delete-old-steps": "false",
		"grad-accum-in-fp32": "true", "hub-repo": "owner/name", "dummy-training-delay-secs": "1.5",
	}
	for _, name := range publishedVariables {
		if name == "gcs-bucket" || name == "gcs-prefix" {
			continue // in place of hub-repo
		}
		value, found := values[name]
		if !found {
			value = "7"
		}
		t.Setenv(strings.ToUpper(strings.ReplaceAll(name, "-", "_")), value)
	}
	all, err := parsed(t, "psyche-client", "train")
	if err != nil {
		t.Fatal(err)
	}
	c := all.Train
	if c.RunID != "7" || c.ServerAddr != "7" || c.KeepSteps != 7 || c.DeleteOldSteps || c.Logs != "json" || c.IrohRelay != "disabled" ||
		c.DummyTrainingDelaySecs != 1.5 || c.MetricsLocalPort != 7 || c.OptimStatsSteps != 7 || c.MaxConcurrentDownloads != 7 || c.BindP2PPort != 7 {
		t.Errorf("got %+v", c)
	}
}

// TestPublishedDefaults compares the defaults of train with the defaults of the original Psyche,
// except the defaults that docs/command-lines.md lists as different.
func TestPublishedDefaults(t *testing.T) {
	page, err := os.ReadFile("../../docs/command-lines.md")
	if err != nil {
		t.Fatal(err)
	}
	var all commands
	parser, err := newParser(t.Context(), &all, terminal{io.Discard, io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	train := slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == "train" })
	defaults := map[string]string{}
	for _, flag := range parser.Model.Children[train].Flags {
		defaults[flag.Name] = flag.Default
	}
	for name, want := range map[string]string{
		"iroh-relay": "psyche", "oltp-report-interval": "60", "data-parallelism": "1", "tensor-parallelism": "1", "micro-batch-size": "1",
		"eval-seed": "42", "hub-max-concurrent-downloads": "3", "max-concurrent-parameter-requests": "8", "max-concurrent-downloads": "4",
		"delete-old-steps": "true", "keep-steps": "3",
	} {
		got, found := defaults[name]
		row := regexp.MustCompile("(?m)^.*`--" + name + "\\b.*$").FindString(string(page))
		said := strings.Contains(row, "the original's") && strings.Contains(row, "is "+want) && strings.Contains(row, "default "+got)
		if !found || row == "" || (got != want) != said {
			t.Errorf("--%s is %q by default, the original's is %q; the page has\n%s", name, got, want, row)
		}
	}
}

func TestManual(t *testing.T) {
	out := succeed(t, "print-all-help", "--markdown")
	if !strings.HasPrefix(out, "# `psyche-client`\n") || !strings.Contains(out, "`--wandb-project") || !strings.Contains(out, "--eval-tasks") {
		t.Errorf("%.300s", out)
	}
	publishedtest.Page(t, "../..", "psyche-client", out)
	fail(t, exitFailure, "no format", "print-all-help")
}

func TestShowIdentity(t *testing.T) {
	raw := bytes.Repeat([]byte{7}, 32)
	file := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	key := identity.FromSeed([identity.SeedSize]byte(raw))
	want := key.ID().String() + "\n"
	for _, flag := range []string{"-i", "--identity-secret-key-path"} {
		if out := succeed(t, "show-identity", flag, file); out != want {
			t.Errorf("%s: got %s, want %s", flag, out, want)
		}
	}
	readable := filepath.Join(t.TempDir(), "readable.key")
	if err := os.WriteFile(readable, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() >= 0 { // Windows has no modes
		fail(t, exitFailure, "key of mode 644", "show-identity", "-i", readable)
	}
	fail(t, exitUsage, "no key", "show-identity")
	t.Setenv("RAW_IDENTITY_SECRET_KEY", hex.EncodeToString(raw))
	if out := succeed(t, "show-identity"); out != want {
		t.Errorf("got %s, want %s", out, want)
	}
	all, err := parsed(t, "psyche-client", "train", "--run-id", "r", "--server-addr", "h:1", "-i", file)
	if err != nil || all.Train.IdentitySecretKeyPath != file {
		t.Errorf("got %q, %v; want nil error and all.Train.IdentitySecretKeyPath == file", all.Train.IdentitySecretKeyPath, err)
	}
}

func TestLogs(t *testing.T) {
	for name, want := range map[string]string{"console": "INF hello", "tui": "INF hello", "TUI-and-console": "INF hello", "JSON": `"msg":"hello"`, "none": ""} {
		file := filepath.Join(t.TempDir(), "logs", "client.txt")
		var format logFormat
		if err := format.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		var errs bytes.Buffer
		logger, closer, err := debugFlags{Logs: format, WriteLog: file}.open(terminal{Err: &errs}, newDisplay(format, terminal{Out: &errs, Err: &errs}))
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("hello", "name", name)
		logger.Debug("not this")
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
		if got := errs.String(); !strings.Contains(got, want) || want == "" && got != "" || strings.Contains(got, "not this") {
			t.Errorf("%s: logged %q", name, got)
		}
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "hello name="+name) {
			t.Errorf("%s: the file has %q, %v", name, text, err)
		}
	}
	_, err := parsed(t, "psyche-client", "train", "--run-id", "r", "--server-addr", "h:1", "--logs", "loud")
	golden.Message(t, "unknown log format", err)
}

func TestIdleFlagsSaySo(t *testing.T) {
	for flags, says := range map[string]bool{
		"--grad-accum-in-fp32": true, "--grad-accum-in-fp32 false": false, "--sidecar-port 1": true, "--keep-event-files 5": true, "--compression 2": true,
		"--iroh-relay n0": true, "--iroh-relay psyche": false, "--iroh-discovery n0": false, "--oltp-logs-url http://h": false,
		"--eval-tasks arc_easy": false, "--prompt-task": false, "--wandb-run r": false, "": false,
	} {
		all, err := parsed(t, "psyche-client", append([]string{"train", "--run-id", "r", "--server-addr", "h:1"}, strings.Fields(flags)...)...)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		all.Train.warn(slog.New(slog.NewTextHandler(&log, nil)))
		if got := log.Len() > 0; got != says {
			t.Errorf("%s: logged %q", flags, log.String())
		}
	}
	for flags, says := range map[string]bool{
		"": false, "--distro": false, "--distro-quantization": true, "--distro --distro-quantization": false, "--seed 4": false, "--grad-accum-in-fp32": true, "--attn-implementation eager": true, "--python": true,
		"--optim-stats": true, "--optim-stats --events-dir e": false, "--start-step 2": false, "--compression-chunk 64": true, "--distro --compression-topk 4": false,
		"--distro --beta1 0.5": true, "--eps 1e-8": false, "--no-quantize-1bit": true, "--optimizer distro --eps 1": true,
	} {
		var all commands
		parser, err := newParser(t.Context(), &all, terminal{io.Discard, io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		line, err := parser.Parse(append([]string{"solo", "--model", "m", "--data-path", "d"}, strings.Fields(flags)...))
		if err != nil {
			t.Fatal(err)
		}
		if err := all.Solo.check(line); err != nil {
			t.Errorf("solo %s: %v", flags, err)
		}
		var log bytes.Buffer
		warnIdle(slog.New(slog.NewTextHandler(&log, nil)), all.Solo.idle(line))
		if got := log.Len() > 0; got != says {
			t.Errorf("solo %s: logged %q", flags, log.String())
		}
	}
}

func TestNetworkFlags(t *testing.T) {
	all, err := parsed(t, "psyche-client", "train", "--run-id", "r", "--server-addr", "h:1", "--bind-p2p-port", "4000", "--bind-p2p-interface", "lo*")
	if err != nil {
		t.Fatal(err)
	}
	if address, err := all.Train.address(); err != nil || !address.Equal(net.IPv4(127, 0, 0, 1)) {
		t.Errorf("lo* is %v, %v", address, err)
	}
	options, err := all.Train.options(identity.Key{}, nil, slog.New(slog.DiscardHandler))
	if want := []string{"/ip4/127.0.0.1/tcp/4000", "/ip4/127.0.0.1/udp/4000/quic-v1"}; err != nil || !slices.Equal(options.Listen, want) {
		t.Errorf("listens on %v, %v", options.Listen, err)
	}
}

func TestPublishedNetworkFlags(t *testing.T) {
	for flags, want := range map[string][2]bool{ // relaying, local discovery
		"": {true, true}, "--iroh-relay disabled": {false, true}, "--iroh-relay n0": {true, true}, "--iroh-relay psyche --no-local-discovery": {true, false},
		"--iroh-discovery local --no-local-discovery": {true, true}, "--iroh-discovery n0": {true, true},
	} {
		all, err := parsed(t, "psyche-client", append([]string{"train", "--run-id", "r", "--server-addr", "h:1"}, strings.Fields(flags)...)...)
		if err != nil {
			t.Fatal(err)
		}
		c := all.Train
		c.apply(&c.networkFlags)
		if got := [2]bool{c.Relaying, c.LocalDiscovery}; got != want {
			t.Errorf("%s: got %v, want %v", flags, got, want)
		}
	}
}

func TestResultsAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "distro")
	var log bytes.Buffer
	w, err := writeResults(dir, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	id := identity.ID{1, 2, 3}
	for step := uint32(1); step <= 50; step++ {
		w.see(fmt.Append(nil, "result of ", step), step, assign.BatchID{Start: 4, End: 8}, id)
	}
	w.see(make([]byte, maxWaiting+1), 99, assign.BatchID{}, id)
	w.close()
	w.see([]byte("late"), 100, assign.BatchID{}, id)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 50 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "step7-batch4-8-"+id.String()+".distro")); err != nil || string(text) != "result of 7" {
		t.Errorf("got %q, %v; want nil error and string(text) == \"result of 7\"", text, err)
	}
	if !strings.Contains(log.String(), "--write-gradients-dir") {
		t.Errorf("no message about skipped results: %s", log.String())
	}
	var none *resultWriter
	none.see(nil, 1, assign.BatchID{}, id)
	none.close()
	if _, err := writeResults(write(t, filepath.Join(t.TempDir(), "file"), nil), nil); err == nil || !strings.Contains(err.Error(), "--write-gradients-dir") {
		t.Errorf("a file as the folder: %v", err)
	}
}

func TestGradientEvents(t *testing.T) {
	events := event.Unwritten()
	var seen []event.Body
	events.Watch(func(e event.Event) { seen = append(seen, e.Body) })
	g := train.Gradient{Step: 4, LR: 0.5, Norm: 2, Tensors: make([]train.TensorStats, maxStats+1)}
	g.Tensors[maxStats] = train.TensorStats{Name: "last", Gradient: 3, Delta: 4}
	gradientEvents(events, slog.New(slog.DiscardHandler))(g)
	if len(seen) != 3 || seen[0] != (event.Gradient{Step: 4, LR: 0.5, Norm: 2}) {
		t.Fatalf("saw %d events, first %v", len(seen), seen[0])
	}
	if last := seen[2].(event.OptimizerStats); last.Step != 4 || len(last.Tensors) != 1 || last.Tensors[0] != (event.TensorStats{Name: "last", GradientEnergy: 3, DeltaEnergy: 4}) {
		t.Errorf("saw %+v", last)
	}
}

// TestTrackers checks that every tracker that flags and environment select gets a board's rows.
func TestTrackers(t *testing.T) {
	for _, name := range []string{"WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"} {
		t.Setenv(name, "")
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	trained := func(f trackerFlags) int {
		t.Helper()
		board := metrics.New()
		all, err := f.start(board, "name", map[string]any{"x": 1}, logger)
		if err != nil {
			t.Fatal(err)
		}
		board.See(event.Event{Time: time.Now(), Body: event.Trained{Step: 1, Loss: 2, Tokens: 3, Seconds: 1}})
		if err := all.close(); err != nil {
			t.Error(err)
		}
		return len(all)
	}
	if n := trained(trackerFlags{}); n != 0 {
		t.Errorf("%d unrequested trackers", n)
	}
	dir := t.TempDir()
	t.Setenv("WANDB_DIR", dir)
	if n := trained(trackerFlags{TensorboardDir: filepath.Join(dir, "tb"), MetricsFile: filepath.Join(dir, "m.jsonl"), WandbProject: "p"}); n != 3 {
		t.Errorf("%d trackers, want 3", n)
	}
	for _, pattern := range []string{"tb/events.out.tfevents.*", "m.jsonl", "offline-run-*/run-*.wandb"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) != 1 {
			t.Errorf("%s: got %v, %v; want nil error and len(found) == 1", pattern, found, err)
		}
	}
	if !strings.Contains(log.String(), "wandb sync") {
		t.Errorf("no message about the folder: %s", log.String())
	}
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, key, _ := r.BasicAuth()
		asked <- r.URL.Path + " " + key
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	t.Setenv("WANDB_API_KEY", "secret\n") // ends as a file of a secret store does
	t.Setenv("WANDB_BASE_URL", server.URL)
	if n := trained(trackerFlags{}); n != 1 || <-asked != "/graphql secret" {
		t.Errorf("%d trackers, want the one of the key", n)
	}
	t.Setenv("WANDB_MODE", "disabled")
	if n := trained(trackerFlags{WandbRun: "r"}); n != 0 {
		t.Errorf("%d trackers, although trackers are disabled", n)
	}
}

// TestModelsOfTheHub trains alone with a model that is given as the name of its repository.
func TestModelsOfTheHub(t *testing.T) {
	requireTorch(t)
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"] = true
	for name, value := range map[string]string{
		"HF_ENDPOINT": s.URL, "HF_TOKEN": "hf_write", "HF_HOME": t.TempDir(), "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "",
	} {
		t.Setenv(name, value)
	}
	model, data := toy(t)
	succeed(t, "upload", model, "org/toy")
	events := t.TempDir()
	out := succeed(t, "solo", "--model", "org/toy", "--data-path", data, "--token-size", "2", "--sequence-length", "16", "--total-batch", "2", "--micro-batch", "1",
		"--total-steps", "3", "--warmup-steps", "1", "--learning-rate", "4e-4", "--beta1", "0.8", "--events-dir", events)
	if !strings.Contains(out, "step 3/3") {
		t.Errorf("got %s; want text with \"step 3/3\"", out)
	}
	var kinds []string
	for e, err := range event.Read(filepath.Join(events, "events.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Body.Kind())
		switch body := e.Body.(type) {
		case event.Gradient:
			if body.LR <= 0 || body.Norm <= 0 {
				t.Errorf("gradient %+v", body)
			}
		case event.Trained:
			if body.Loss <= 0 || body.Tokens != 32 || body.Seconds <= 0 || body.Memory == 0 {
				t.Errorf("trained %+v", body)
			}
		}
	}
	if want := "started " + strings.Repeat("gradient trained ", 3); strings.Join(kinds, " ")+" " != want {
		t.Errorf("events %v", kinds)
	}
	succeed(t, "evaluate", "--model", "org/toy", "--data", filepath.Join(data, "a.ds"), "--token-size", "2")
	failNaming(t, exitFailure, "org/none", "evaluate", "--model", "org/none", "--data", data)
	fail(t, exitUsage, "missing model", "evaluate", "--model", "none", "--data", data)
}
