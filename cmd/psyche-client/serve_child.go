package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// ending describes how a client process ended.
type ending struct {
	code int    // its exit code; -1: a signal ended it
	text string // additional explanation; may be empty
}

// String describes the result for people.
func (e ending) String() string {
	meaning := map[int]string{
		exitFailure:     "it failed; see the messages above",
		exitRefused:     "the run or its server refused it",
		exitConnection:  "the server is unreachable, has the wrong key, or serves the wrong run",
		exitInterrupted: "it was interrupted",
	}[e.code]
	switch {
	case e.text != "":
		return e.text
	case meaning == "":
		return fmt.Sprintf("exit code %d", e.code)
	}
	return fmt.Sprintf("%s (exit code %d)", meaning, e.code)
}

// child is a client in a separate process.
type child struct {
	pid       int
	ended     chan struct{} // closed at its end
	end       ending        // result; valid after ended is closed
	interrupt func() error  // asks it to leave its run
	kill      func() error
}

// startChild starts a client. The client is not in the terminal's foreground group, so that an
// interrupt reaches it only through this process. It keeps the lock file open while it runs.
func startChild(program string, args []string, lock *os.File, t terminal) (*child, error) {
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = t.Out, t.Err
	// By default, a crash of the Go runtime or a lack of memory ends a program with status 2, like a
	// wrong command line, and this run would be put aside. With this variable, a signal ends the
	// program.
	command.Env = append(os.Environ(), "GOTRACEBACK=crash")
	command.ExtraFiles = []*os.File{lock}
	command.SysProcAttr = ownGroup()
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	c := &child{
		pid:       command.Process.Pid,
		ended:     make(chan struct{}),
		interrupt: func() error { return command.Process.Signal(os.Interrupt) },
		kill:      command.Process.Kill,
	}
	go func() {
		c.end = endingOf(command.Wait())
		close(c.ended)
	}()
	return c, nil
}

// endingOf converts the result of Wait.
func endingOf(err error) ending {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return ending{}
	case !ok:
		return ending{code: exitFailure, text: err.Error()}
	case exit.ExitCode() < 0:
		return ending{code: -1, text: exit.String()}
	}
	return ending{code: exit.ExitCode()}
}

// leave asks the client to leave its run and waits until it has ended. It kills the client when
// enough or impatient fires. Both may be nil.
func (c *child) leave(enough <-chan time.Time, impatient <-chan struct{}) {
	if err := c.interrupt(); err != nil { // on systems without interrupts
		_ = c.kill() // fails only if it has ended
	}
	select {
	case <-c.ended:
		return
	case <-enough:
	case <-impatient:
	}
	_ = c.kill() // fails only if it has ended
	<-c.ended
}
