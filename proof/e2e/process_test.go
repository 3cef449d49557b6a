package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/signals/signalstest"
)

// Limits that only a hang or a very slow machine exceeds.
const (
	commandTimeout = time.Minute     // for a command that does its work and ends
	runTimeout     = 2 * time.Minute // of a whole run
	exitTimeout    = 30 * time.Second
	promptExit     = 10 * time.Second // for a process that was asked to end
)

// process is a running program with methods for tests.
type process struct{ *child.Process }

// start starts a process, which ends at the end of the test at the latest.
func start(t *testing.T, name, output, binary string, env []string, args ...string) *process {
	t.Helper()
	p := &process{&child.Process{Name: name, Log: output, Program: binary, Args: args, Env: append([]string{shimVariable()}, env...)}}
	signalstest.CatchHangups()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill(t)
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, tail(p.text(t), 20))
		}
	})
	return p
}

// kill ends the process as a crash would.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
}

// interrupt has the same effect as Ctrl-C.
func (p *process) interrupt(t *testing.T) {
	t.Helper()
	select {
	case <-p.Ended():
		t.Fatalf("interrupt %s: it has already ended", p.Name)
	default:
		p.Signal(syscall.SIGINT)
	}
}

// exitCode waits for the end of the process.
func (p *process) exitCode(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.Ended():
		return p.ExitCode()
	case <-time.After(limit):
		t.Fatalf("%s has not ended within %v", p.Name, limit)
		return 0
	}
}

// text returns the output of all starts of the process so far.
func (p *process) text(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(p.Log)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// waitText waits until wanted occurs count times in the output of the process.
func (p *process) waitText(t *testing.T, wanted string, count int) {
	t.Helper()
	until(t, p.Name+" to print "+wanted, func() bool {
		if strings.Count(p.text(t), wanted) >= count {
			return true
		}
		select {
		case <-p.Ended():
			if strings.Count(p.text(t), wanted) >= count {
				return true
			}
			t.Fatalf("%s ended without printing %q %d times", p.Name, wanted, count)
		default:
		}
		return false
	})
}

// until checks a condition repeatedly until it holds.
func until(t *testing.T, subject string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(commandTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Fatalf("waited %v for %s", commandTimeout, subject)
		}
	}
}

// run runs a command to its end and returns its exit code and output.
func run(t *testing.T, binary string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	command.Env = clientEnv()
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s %s: not done after %v\n%s", filepath.Base(binary), args[0], commandTimeout, out.String())
	}
	return command.ProcessState.ExitCode(), out.String()
}

// must runs a command that must succeed.
func must(t *testing.T, binary string, args ...string) string {
	t.Helper()
	code, out := run(t, binary, args...)
	if code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s", filepath.Base(binary), strings.Join(args, " "), code, out)
	}
	return out
}

// noPanic checks that a program did not end with a Go panic or a fault.
func noPanic(t *testing.T, name, text string) {
	t.Helper()
	for _, sign := range []string{"panic:", "goroutine ", "fatal error:", "SIGSEGV"} {
		if strings.Contains(text, sign) {
			t.Errorf("%s printed %q:\n%s", name, sign, tail(text, 40))
		}
	}
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
