//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/signals"
)

// TestSignals sends each signal that ends programs to commands in separate processes. Each command ends soon, and
// keeps its work. The limit is wider than the second that a person waits, for machines under load.
func TestSignals(t *testing.T) {
	const limit = 5 * time.Second
	state, err := filepath.Abs("../../configs/smoke/state.toml")
	if err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe") // to open it blocks until a writer opens it
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		line   []string
		until  string // text that the command prints when it is at work; empty: a second after its start
		code   int
		prints string
	}{
		{"server run", []string{"server", "run", "--state", state, "--server-port", "0", "--save-state-dir", "."}, "listening", 0, ""},
		{"dash", []string{"dash", "--http-addr", "127.0.0.1:0", "."}, "the page is at", 0, ""},
		{"sim", []string{"sim", "--seeds", "1..1000000"}, "", signals.Interrupted, "seeds/s; 0 violations\npsyche: interrupted\n"},
		{"chain start", []string{"chain", "start", "--listen", "127.0.0.1:0"}, "JSON-RPC", 0, ""},
		{"run status", []string{"run", "status", "--server-addr", "192.0.2.1:9", "--run-id", "r", "--timeout", "1h"}, "", signals.Interrupted, ": interrupted\n"},
		{"run replay of a pipe", []string{"run", "replay", pipe}, "", signals.Interrupted, ""},
	} {
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(fmt.Sprint(c.name, " ", s), func(t *testing.T) {
				t.Parallel()
				p := startLine(t, c.line)
				p.await(t, c.until)
				begun := time.Now()
				if err := p.command.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				_ = p.command.Wait() // the exit code is checked instead
				code, took, out := p.command.ProcessState.ExitCode(), time.Since(begun), p.text()
				if code != c.code || took > limit || !strings.Contains(out, c.prints) {
					t.Errorf("ended with %d after %v, want %d and %q: %s", code, took, c.code, c.prints, out)
				}
			})
		}
	}
}

// lineProcess is a command line in a separate process.
type lineProcess struct {
	command *exec.Cmd
	out     string // file
}

// startLine starts the program in a new folder.
func startLine(t *testing.T, line []string) *lineProcess {
	t.Helper()
	dir := t.TempDir()
	p := &lineProcess{command: exec.CommandContext(t.Context(), os.Args[0]), out: filepath.Join(t.TempDir(), "out.txt")}
	out, err := os.Create(p.out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	p.command.Args = append([]string{"psyche"}, line...) // TestMain runs the program under this name
	p.command.Dir, p.command.Stdout, p.command.Stderr = dir, out, out
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *lineProcess) text() string {
	text, _ := os.ReadFile(p.out)
	return string(text)
}

// await waits until the process has printed a text, or for a second if that is empty.
func (p *lineProcess) await(t *testing.T, text string) {
	t.Helper()
	if text == "" {
		time.Sleep(time.Second)
		return
	}
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(p.text(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the program has not printed %q: %s", text, p.text())
		}
	}
}
