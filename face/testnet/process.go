package testnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child process that can be killed and restarted. All its lives append to one log
// file.
type process struct {
	name    string
	logPath string
	binary  string
	args    []string
	env     []string

	mu      sync.Mutex
	command *exec.Cmd
	done    chan struct{} // closed when the current life has ended
	err     error         // result of the last life
	killed  bool          // kill ended the current life
}

// start starts a new life. The process must not be running.
func (p *process) start() error {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	command := exec.Command(p.binary, p.args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append(os.Environ(), p.env...)
	command.SysProcAttr = ownGroup()
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.name, err), log.Close())
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.command, p.done, p.err, p.killed = command, done, nil, false
	p.mu.Unlock()
	go func() {
		err := errors.Join(command.Wait(), log.Close())
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// exited returns a channel that is closed when the current life has ended.
func (p *process) exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// result returns the result of the last life. wasKilled is true if kill ended it.
func (p *process) result() (err error, wasKilled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err, p.killed
}

// endsBefore returns an error if the process ends before ctx does.
func (p *process) endsBefore(ctx context.Context) error {
	select {
	case <-p.exited():
		err, _ := p.result()
		if err == nil {
			err = errors.New("unexpected exit")
		}
		return fmt.Errorf("%s ended: %w: %s", p.name, err, p.logTail(3))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill ends the process with SIGKILL, as a crash would.
func (p *process) kill() error {
	p.mu.Lock()
	p.killed = true
	command, done := p.command, p.done
	p.mu.Unlock()
	if err := command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-done
	return nil
}

// stop asks the process to end, and kills it if it is still running after grace.
func (p *process) stop(grace time.Duration) {
	p.mu.Lock()
	command, done := p.command, p.done
	p.mu.Unlock()
	if command == nil {
		return
	}
	_ = command.Process.Signal(syscall.SIGINT) // fails only if it has already ended
	select {
	case <-done:
	case <-time.After(grace):
		_ = command.Process.Kill() // fails only if it has already ended
		<-done
	}
}

// output runs a command to its end and returns its output. If the command fails, the error contains
// the last lines of its standard error.
func output(ctx context.Context, env []string, binary string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, binary, args...)
	command.Env = append(os.Environ(), env...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = 5 * time.Second
	out, err := command.Output()
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(binary), args[0], context.Cause(ctx))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s %s: %w: %s", binary, args[0], err, lastLines(exit.Stderr, 3))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", binary, args[0], err)
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

// logTail returns the last lines of the process's log, for an error message.
func (p *process) logTail(n int) string {
	file, err := os.Open(p.logPath)
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
