package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Place is the location of a process, with its address for other processes.
type Place struct {
	Address string
	Wrap    func(program string, args ...string) (string, []string) // nil: here
	Env     []string                                                // of its processes, in addition to this process's environment
	Sent    func() int64                                            // bytes sent so far, including headers; nil: not counted
}

// Link configures the outgoing packets of a place. The zero value is a perfect link.
type Link struct {
	Delay        time.Duration // of every packet, one way
	LossPerMille int           // lost packets per thousand
	Rate         int64         // bit/s; 0: unlimited
}

// ErrNoLinks means that this machine cannot make links.
var ErrNoLinks = errors.New("cannot create links with a delay")

// Loopback returns places that are all on this machine's loopback device.
func Loopback(count int) []Place {
	places := make([]Place, count)
	for i := range places {
		places[i].Address = "127.0.0.1"
	}
	return places
}

// Process is a running program. Its output goes to a file.
type Process struct {
	name    string
	log     string // path
	command *exec.Cmd
	ended   chan struct{}
	err     error // result of the process
}

// shutdownGrace is the time limit for a process to end after it was asked to.
const shutdownGrace = 10 * time.Second

// Start starts a program in a place. The end of ctx ends it.
func Start(ctx context.Context, p Place, name, log, program string, args ...string) (*Process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if p.Wrap != nil {
		program, args = p.Wrap(program, args...)
	}
	one := &Process{name: name, log: log, ended: make(chan struct{}), command: exec.CommandContext(ctx, program, args...)}
	one.command.Stdout, one.command.Stderr = file, file
	one.command.Env = append(os.Environ(), p.Env...)
	one.command.Cancel = func() error { return one.command.Process.Signal(syscall.SIGINT) }
	one.command.WaitDelay = shutdownGrace
	if err := one.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), file.Close())
	}
	go func() {
		one.err = errors.Join(one.command.Wait(), file.Close())
		close(one.ended)
	}()
	return one, nil
}

// Wait waits until the process has ended by itself.
func (p *Process) Wait() error {
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%s ended: %w: %s", p.name, p.err, p.lastWords())
	}
	return nil
}

// ExitCode returns the exit code of a process that has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.command.ProcessState.ExitCode() }

// PID returns the process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// CPU returns the CPU time of a process that has ended.
func (p *Process) CPU() time.Duration {
	return p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime()
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Signal sends the process a signal. It does nothing if the process has ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

// lastWords returns the end of the process's output.
func (p *Process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// Folder creates a folder for a process and returns its path.
func Folder(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	return dir, nil
}

// FreePort asks the system for a free port of the loopback device.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
