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
	"github.com/psyche-go/psyche/base/signals/signalstest"
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
				p.Await(t, c.until)
				code, took := p.End(t, s)
				out := p.Text()
				if code != c.code || took > limit || !strings.Contains(out, c.prints) {
					t.Errorf("ended with %d after %v, want %d and %q: %s", code, took, c.code, c.prints, out)
				}
			})
		}
	}
}

// startLine starts the program in a new folder.
func startLine(t *testing.T, line []string) *signalstest.Process {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Args = append([]string{"psyche"}, line...) // TestMain runs the program under this name
	command.Dir = t.TempDir()
	return signalstest.Start(t, command)
}
