package supervisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// End describes how a client process ended.
type End struct {
	Code int    // its exit code; -1: a signal ended it, or it did not start
	Text string // additional explanation; may be empty
}

// Client is a client in a separate process.
type Client struct {
	PID       int
	Ended     chan struct{} // closed at its end
	End       End           // result; valid after Ended is closed
	Interrupt func() error  // asks it to leave its run
	Kill      func() error
}

// Start starts a client that writes to out and problems. The client is not in the terminal's foreground group, so that an
// interrupt reaches it only through this process. It keeps the lock file open while it runs.
func Start(program string, args []string, lock *os.File, out, problems io.Writer) (*Client, error) {
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = out, problems
	// By default, a crash of the Go runtime or a lack of memory ends a program with status 2, like a
	// wrong command line, and this run would be put aside. With this variable, a signal ends the
	// program.
	command.Env = append(os.Environ(), "GOTRACEBACK=crash")
	command.ExtraFiles = []*os.File{lock}
	command.SysProcAttr = ownGroup()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	c := &Client{
		PID:       command.Process.Pid,
		Ended:     make(chan struct{}),
		Interrupt: func() error { return command.Process.Signal(os.Interrupt) },
		Kill:      command.Process.Kill,
	}
	go func() {
		c.End = endOf(command.Wait())
		close(c.Ended)
	}()
	return c, nil
}

// endOf converts the result of Wait.
func endOf(err error) End {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return End{}
	case !ok:
		return End{Code: -1, Text: err.Error()}
	case exit.ExitCode() < 0:
		return End{Code: -1, Text: exit.String()}
	}
	return End{Code: exit.ExitCode()}
}

// leave asks the client to leave its run and waits until it has ended. It kills the client when
// enough or impatient fires. Both may be nil.
func (c *Client) leave(enough <-chan time.Time, impatient <-chan struct{}) {
	if err := c.Interrupt(); err != nil { // on systems without interrupts
		_ = c.Kill() // fails only if it has ended
	}
	select {
	case <-c.Ended:
		return
	case <-enough:
	case <-impatient:
	}
	_ = c.Kill() // fails only if it has ended
	<-c.Ended
}
