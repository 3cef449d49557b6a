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

// Place is where a process runs and the address that others reach it at.
type Place struct {
	Address string
	Wrap    func(program string, args ...string) (string, []string) // nil: here
	Env     []string                                                // of its processes, beside that of this one
	Sent    func() int64                                            // bytes that left it so far, headers included; nil: not counted
}

// Link is what a place's packets go through on their way out. The zero value is a perfect link.
type Link struct {
	Delay        time.Duration // of every packet, one way
	LossPerMille int           // packets lost of a thousand
	Rate         int64         // bits a second; 0: no limit
}

// ErrNoLinks says that this machine cannot make links.
var ErrNoLinks = errors.New("links with a delay cannot be made")

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
	err     error // how it ended
}

// shutdownGrace is how long a process may take to end after being asked to.
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

// ExitCode returns that of a process that has ended; -1 of one that a signal ended.
func (p *Process) ExitCode() int { return p.command.ProcessState.ExitCode() }

// PID returns the number that the system knows the process by.
func (p *Process) PID() int { return p.command.Process.Pid }

// CPU returns how long a process that has ended used processors.
func (p *Process) CPU() time.Duration {
	return p.command.ProcessState.UserTime() + p.command.ProcessState.SystemTime()
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Signal sends the process a signal. One that has ended gets none.
func (p *Process) Signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

// lastWords returns the end of what the process printed.
func (p *Process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// Folder makes a folder for a process and returns its path.
func Folder(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	return dir, nil
}

// FreePort asks the system for a port of the loopback device that nobody listens on.
func FreePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
