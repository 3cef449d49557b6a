package main

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

// place is where a process runs and the address that others reach it at.
type place struct {
	address string
	wrap    func(program string, args ...string) (string, []string) // nil: here
}

var errNoLinks = errors.New("links with a delay cannot be made")

// loopback returns places that are all on this machine's loopback device.
func loopback(count int) []place {
	places := make([]place, count)
	for i := range places {
		places[i].address = "127.0.0.1"
	}
	return places
}

// process is a running program. Its output goes to a file.
type process struct {
	name    string
	log     string // path
	command *exec.Cmd
	ended   chan struct{} // closed when it has ended
	err     error         // how it ended
}

// shutdownGrace is how long a process may take to end after being asked to.
const shutdownGrace = 10 * time.Second

// start starts a program in a place. The end of ctx ends it.
func start(ctx context.Context, p place, name, log, program string, args ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if p.wrap != nil {
		program, args = p.wrap(program, args...)
	}
	one := &process{name: name, log: log, ended: make(chan struct{}), command: exec.CommandContext(ctx, program, args...)}
	one.command.Stdout, one.command.Stderr = file, file
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

// wait waits until the process has ended by itself.
func (p *process) wait() error {
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%s ended: %w: %s", p.name, p.err, p.lastWords())
	}
	return nil
}

// lastWords returns the end of what the process printed.
func (p *process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// folder makes a folder for a process and returns its path.
func folder(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	return dir, nil
}

// freePort asks the system for a port of the loopback device that nobody listens on.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}
