// Package child runs child processes that can be killed and restarted.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a child process. A start after its end is another life of the same process; all lives
// append their output to one log file. Its methods are safe for concurrent use, but Start must not
// be called while a life is running.
type Process struct {
	Name    string // for errors
	Log     string // path of the log file
	Program string
	Args    []string
	Env     []string                                                // in addition to this process's environment
	Wrap    func(program string, args ...string) (string, []string) // runs the command line elsewhere; nil: here

	// OwnGroup keeps a terminal's Ctrl-C from the process, and ends it when this process is killed (on
	// Linux). The threads that start such processes must not end before them.
	OwnGroup bool

	mu      sync.Mutex
	command *exec.Cmd
	ended   chan struct{} // closed when the current life has ended
	err     error         // result of the current life
	killed  bool          // Kill ended the current life
}

// Start starts a new life.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	program, args := p.Program, p.Args
	if p.Wrap != nil {
		program, args = p.Wrap(program, args...)
	}
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), p.Env...)
	if p.OwnGroup {
		command.SysProcAttr = ownGroup()
	}
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Name, err), log.Close())
	}
	ended := make(chan struct{})
	p.mu.Lock()
	p.command, p.ended, p.err, p.killed = command, ended, nil, false
	p.mu.Unlock()
	go func() {
		err := errors.Join(command.Wait(), log.Close())
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(ended)
	}()
	return nil
}

// endGrace is the time limit for a process to end after its context did.
const endGrace = 10 * time.Second

// StartUntil starts a new life, which ends with ctx, as by Stop.
func (p *Process) StartUntil(ctx context.Context) error {
	if err := p.Start(); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { p.Stop(endGrace) })
	return nil
}

// Started reports whether the process has had a life.
func (p *Process) Started() bool { return p.Ended() != nil }

// Ended returns a channel that is closed when the current life has ended. It is nil before the
// first life.
func (p *Process) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// Result returns the result of the last life. killed is true if Kill ended it.
func (p *Process) Result() (err error, killed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err, p.killed
}

// Failure returns the result of the last life as an error with its last log lines; nil if it
// succeeded.
func (p *Process) Failure() error {
	err, _ := p.Result()
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s ended: %w: %s", p.Name, err, p.LogTail(3))
}

// Wait waits until the current life has ended, and returns its Failure.
func (p *Process) Wait() error {
	<-p.Ended()
	return p.Failure()
}

// current returns the current life's command; nil before the first life.
func (p *Process) current() *exec.Cmd {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.command
}

// ExitCode returns the exit code of a life that has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.current().ProcessState.ExitCode() }

// PID returns the process id of the current life.
func (p *Process) PID() int { return p.current().Process.Pid }

// CPU returns the CPU time of a life that has ended.
func (p *Process) CPU() time.Duration {
	state := p.current().ProcessState
	return state.UserTime() + state.SystemTime()
}

// Signal sends the process a signal. It does nothing if the process has ended.
func (p *Process) Signal(s os.Signal) { _ = p.current().Process.Signal(s) }

// Kill ends the process with SIGKILL, as a crash would, and waits for its end.
func (p *Process) Kill() error {
	p.mu.Lock()
	p.killed = true
	command, ended := p.command, p.ended
	p.mu.Unlock()
	if err := command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-ended
	return nil
}

// Stop asks the process to end, and kills it if it is still running after grace. It does nothing
// before the first life.
func (p *Process) Stop(grace time.Duration) {
	p.mu.Lock()
	command, ended := p.command, p.ended
	p.mu.Unlock()
	if command == nil {
		return
	}
	_ = command.Process.Signal(syscall.SIGINT) // fails only if it has already ended
	select {
	case <-ended:
	case <-time.After(grace):
		_ = command.Process.Kill() // fails only if it has already ended
		<-ended
	}
}

// LogTail returns the last n non-empty lines of the process's log, joined by " | ", for an error
// message.
func (p *Process) LogTail(n int) string {
	file, err := os.Open(p.Log)
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // opened for reading only
	const window = 8 << 10
	if info, err := file.Stat(); err == nil && info.Size() > window {
		if _, err := file.Seek(-window, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(file, window))
	if err != nil {
		return ""
	}
	return lastLines(text, n)
}

// AwaitPort returns when the process listens at a TCP address. It returns an error if the process
// or ctx ends before.
func (p *Process) AwaitPort(ctx context.Context, address string) error {
	dialer := net.Dialer{Timeout: time.Second}
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.Ended():
			return fmt.Errorf("%s ended before it listened on %s: %s", p.Name, address, p.LogTail(3))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", p.Name, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Output runs a program to its end and returns its output. env is in addition to this process's
// environment. If the program fails, the error contains the last lines of its standard error.
func Output(ctx context.Context, env []string, program string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), env...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = 5 * time.Second
	out, err := command.Output()
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(program), args[0], context.Cause(ctx))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s %s: %w: %s", program, args[0], err, lastLines(exit.Stderr, 3))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return out, nil
}

// lastLines returns the last n non-empty lines of text, joined by " | ".
func lastLines(text []byte, n int) string {
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// IsFree reports whether a TCP port of this machine is free.
func IsFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && listener.Close() == nil
}

// FreePort returns a free TCP port of the loopback device. The port is below the ranges from which
// systems choose the ports of outgoing connections (from 32768 on Linux, from 49152 elsewhere). So it
// is likely to stay free until a process listens on it, also after that process restarts.
func FreePort() (int, error) {
	const (
		first, end = 10000, 32768
		attempts   = 100
	)
	for range attempts {
		if port := first + rand.IntN(end-first); IsFree(port) {
			return port, nil
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// FreePorts returns a free port whose successor is free too.
func FreePorts() (int, error) {
	for {
		port, err := FreePort()
		if err != nil || IsFree(port+1) {
			return port, err
		}
	}
}
