package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/psyche-go/psyche/base/signals/signalstest"
)

// signalledProcess is the environment variable that makes the program print signalstest.Started.
const signalledProcess = "PSYCHE_TEST_SIGNALLED"

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"psyche": func() {
		if os.Getenv(signalledProcess) != "" {
			fmt.Println(signalstest.Started)
		}
		os.Exit(start())
	}})
}

// TestScripts runs the scripts in testdata: the .txt files except messages.txt.
func TestScripts(t *testing.T) {
	samples, err := filepath.Abs("../../record/config/testdata")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	scripts = slices.DeleteFunc(scripts, func(path string) bool { return filepath.Base(path) == "messages.txt" })
	testscript.Run(t, testscript.Params{
		Files: scripts,
		Setup: func(env *testscript.Env) error {
			env.Setenv("SAMPLES", samples)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// exits CODE: the previous command ended with CODE. `exec` can only test for failure.
			"exits": exits,
		},
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(3 * time.Minute),
	})
}

// exits runs a program and checks its exit code: exits CODE program [args].
func exits(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: exits CODE program [args]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s\n%s", code, args[0], ts.ReadFile("stderr"))
	}
}

// TestConfigurationsValidate runs the server's check on every configuration of the
// repository.
func TestConfigurationsValidate(t *testing.T) {
	for _, pattern := range []string{"../../configs/*/state.toml", "../../record/config/testdata/*.toml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no file matches %s (%v)", pattern, err)
		}
		for _, file := range files {
			var out, errs strings.Builder
			if code := run(t.Context(), []string{"server", "validate-config", "--state", file, "--run-id", "r"}, console{&out, &errs}); code != exitOK {
				t.Errorf("%s: exit code %d\n%s", file, code, errs.String())
			}
		}
	}
}

// hosted is a server that runs in the test.
type hosted struct {
	address string
	stop    context.CancelFunc
	code    chan int
}

// host starts `psyche server run` and waits until it listens.
func host(t *testing.T, args ...string) hosted {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	logs, writer := io.Pipe()
	h := hosted{stop: cancel, code: make(chan int, 1)}
	go func() {
		code := run(ctx, append([]string{"server", "run", "--server-addr", "127.0.0.1", "--log", "json"}, args...), console{io.Discard, writer})
		_ = writer.Close()
		h.code <- code
	}()
	lines := bufio.NewScanner(logs)
	var all []string
	for h.address == "" && lines.Scan() {
		all = append(all, lines.Text())
		var line struct{ Msg, Address string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("log line %q: %v", lines.Text(), err)
		}
		h.address = line.Address
	}
	go func() { _, _ = io.Copy(io.Discard, logs) }()
	if h.address == "" {
		t.Fatalf("the server ended with code %d:\n%s", <-h.code, strings.Join(all, "\n"))
	}
	return h
}

func TestServerRunStopsCleanlyAndComesBack(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--state", "../../record/config/testdata/server.toml", "--save-state-dir", filepath.Join(dir, "state"), "--events-dir", filepath.Join(dir, "events")}
	for range 2 {
		h := host(t, args...)
		connection, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		if err := connection.Close(); err != nil {
			t.Fatal(err)
		}
		h.stop()
		if code := <-h.code; code != exitOK {
			t.Fatalf("exit code %d", code)
		}
	}
	events, err := os.ReadFile(filepath.Join(dir, "events", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(events), `"kind":"started"`); n != 2 {
		t.Errorf("the event log has %d starts, want 2:\n%s", n, events)
	}
	if !strings.Contains(string(events), `"run_state":"WaitingForMembers"`) {
		t.Errorf("the event log has no state:\n%s", events)
	}
}

// TestServerRunKeepsItsPort restarts a server that chose its port. Clients that lost their
// connection look for the server at the same port.
func TestServerRunKeepsItsPort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"--state", "../../record/config/testdata/server.toml", "--save-state-dir", dir}
	first := host(t, args...)
	first.stop()
	if code := <-first.code; code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	again := host(t, args...)
	if again.address != first.address {
		t.Errorf("the server's address was %s, and is %s after a restart", first.address, again.address)
	}
	again.stop()
	<-again.code

	taken, err := net.Listen("tcp", first.address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	var errs strings.Builder
	command := append([]string{"server", "run", "--server-addr", "127.0.0.1", "--log", "none"}, args...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // ends a server that starts although it must not
	defer cancel()
	code := run(ctx, command, console{io.Discard, &errs})
	if code != exitFailed || !strings.Contains(errs.String(), filepath.Join(dir, portFile)) || !strings.Contains(errs.String(), "--server-port") {
		t.Errorf("with the port taken: exit code %d, %s", code, errs.String())
	}
	if err := os.WriteFile(filepath.Join(dir, portFile), []byte("none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	errs.Reset()
	if code := run(ctx, command, console{io.Discard, &errs}); code != exitFailed {
		t.Errorf("with a broken file: exit code %d, %s", code, errs.String())
	} else {
		printed(t, code, "broken file", errs.String())
	}
}

func TestServerRunSaysThatThePortIsTaken(t *testing.T) {
	h := host(t, "--state", "../../record/config/testdata/server.toml")
	_, port, err := net.SplitHostPort(h.address)
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	code := run(t.Context(), []string{"server", "run", "--server-addr", "127.0.0.1", "--server-port", port, "--log", "none",
		"--state", "../../record/config/testdata/server.toml"}, console{io.Discard, &errs})
	if code != exitFailed {
		t.Errorf("exit code %d, %s", code, errs.String())
	} else {
		printed(t, code, "port in use", strings.ReplaceAll(errs.String(), port, "PORT"))
	}
}

// TestInterruptedTokenizeLeavesNothing interrupts the command before it does any work.
func TestInterruptedTokenizeLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	output := filepath.Join(t.TempDir(), "out")
	var errs strings.Builder
	code := run(ctx, []string{"data", "tokenize", "--output", output, "."}, console{io.Discard, &errs})
	if code != exitInterrupted {
		t.Errorf("exit code %d, want %d: %s", code, exitInterrupted, errs.String())
	}
	if _, err := os.Stat(output); !os.IsNotExist(err) {
		t.Errorf("the output folder exists: %v", err)
	}
}

func ExampleHelp() {
	code := run(context.Background(), []string{"version", "--help"}, console{os.Stdout, os.Stdout})
	fmt.Println("exit code", code)
	// Output:
	// Usage: psyche version [flags]
	//
	// Print the version of the program.
	//
	// Flags:
	//   -h, --help       Show context-sensitive help.
	//   -v, --version    Print the version of the program.
	// exit code 0
}

// TestNoSilentNumbers checks that numbers that would otherwise have a special meaning are refused.
func TestNoSilentNumbers(t *testing.T) {
	status := []string{"run", "status", "--run-id", "r", "--server-addr", "127.0.0.1:1"}
	start := []string{"testnet", "start", "--config-path", "nowhere"}
	for _, test := range []struct {
		command []string
		flag    string
	}{
		{status, "--timeout=0s"},
		{status, "--timeout=-1s"},
		{[]string{"sim"}, "--parallel=-1"},
		{start, "--threads=-1"},
		{start, "--micro-batch-size=0"},
		{start, "--random-kill-num=-1"},
		{start, "--random-kill-interval=NaN"},
		{start, "--restart-delay=-1"},
		{start, "--restart-delay=1e30"},
		{start, "--server-port=-1"},
		{start, "--server-port=70000"},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), append(slices.Clone(test.command), test.flag), console{&out, &errs})
		if code != exitUsage {
			t.Errorf("%s: exit code %d:\n%s", test.flag, code, errs.String())
		} else {
			printed(t, code, test.flag, errs.String())
		}
	}
}
