// Package signalstest runs commands for tests that send them signals.
package signalstest

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// longest is the time after which End kills a process that did not end.
const longest = 2 * time.Minute

// CatchHangups makes child processes receive SIGHUP although the test runs under nohup. They inherit an
// ignored signal, but not a handler.
var CatchHangups = sync.OnceFunc(func() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
})

// Process is a command in a separate process. Its output goes to a file.
type Process struct {
	command *exec.Cmd
	out     string
}

// Start starts a command. The context of the command must end with the test.
func Start(t *testing.T, command *exec.Cmd) *Process {
	t.Helper()
	p := &Process{command: command, out: filepath.Join(t.TempDir(), "out.txt")}
	out, err := os.Create(p.out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	command.Stdout, command.Stderr = out, out
	CatchHangups()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// Text returns the output so far.
func (p *Process) Text() string {
	text, _ := os.ReadFile(p.out)
	return string(text)
}

// Started is a line that processes print before they wait for signals.
const Started = "the process of the test has started"

// Await waits until the process has printed a text. If the text is empty, it waits for the line Started
// and one second more.
func (p *Process) Await(t *testing.T, text string) {
	t.Helper()
	if text == "" {
		p.Await(t, Started)
		time.Sleep(time.Second)
		return
	}
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(p.Text(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the program has not printed %q: %s", text, p.Text())
		}
	}
}

// Send sends a signal.
func (p *Process) Send(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// End sends a signal, and returns the exit code and the time until the process ended. It kills a
// process that does not end.
func (p *Process) End(t *testing.T, s os.Signal) (code int, took time.Duration) {
	t.Helper()
	begun := time.Now()
	p.Send(t, s)
	overdue := time.AfterFunc(longest, func() {
		t.Errorf("the process did not end within %v after %v: %s", longest, s, p.Text())
		_ = p.command.Process.Kill()
	})
	defer overdue.Stop()
	_ = p.command.Wait() // the caller checks the exit code instead
	return p.command.ProcessState.ExitCode(), time.Since(begun)
}
