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

	"github.com/psyche-go/psyche/base/signals/signalstest"
)

// Limits that only a hang or a very slow machine exceeds.
const (
	commandTimeout = time.Minute     // for a command that does its work and ends
	runTimeout     = 2 * time.Minute // of a whole run
	exitTimeout    = 30 * time.Second
	promptExit     = 10 * time.Second // for a process that was asked to end
)

// process is a running program. Its output goes to a file, so that it can be read while the process
// runs.
type process struct {
	name    string
	command *exec.Cmd
	output  string        // path
	ended   chan struct{} // closed when the process has ended
}

// start starts a process, which ends at the end of the test at the latest.
func start(t *testing.T, name, output, binary string, env []string, args ...string) *process {
	t.Helper()
	file, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, output: output, command: exec.Command(binary, args...), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = file, file
	p.command.Env = append(clientEnv(), env...)
	signalstest.CatchHangups()
	err = p.command.Start()
	if closeErr := file.Close(); closeErr != nil {
		t.Error(closeErr)
	}
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.command.Wait() // the outcome is in ProcessState
		close(p.ended)
	}()
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
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill %s: %v", p.name, err)
	}
	<-p.ended
}

// interrupt has the same effect as Ctrl-C.
func (p *process) interrupt(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatalf("interrupt %s: %v", p.name, err)
	}
}

// exitCode waits for the end of the process.
func (p *process) exitCode(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.command.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("%s has not ended within %v", p.name, limit)
		return 0
	}
}

// text returns the output of all starts of the process so far.
func (p *process) text(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(p.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// waitText waits until wanted occurs count times in the output of the process.
func (p *process) waitText(t *testing.T, wanted string, count int) {
	t.Helper()
	until(t, p.name+" to print "+wanted, func() bool {
		if strings.Count(p.text(t), wanted) >= count {
			return true
		}
		select {
		case <-p.ended:
			if strings.Count(p.text(t), wanted) >= count {
				return true
			}
			t.Fatalf("%s ended without printing %q %d times", p.name, wanted, count)
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
