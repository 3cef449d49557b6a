package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// ending is how a client ended.
type ending struct {
	code int    // its exit code; -1: a signal ended it
	text string // more, where the code does not say all
}

// String says it for people.
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

// child is a client in a process of its own.
type child struct {
	pid       int
	ended     chan struct{} // closed when it has ended
	end       ending        // how, then
	interrupt func() error  // asks it to leave its run
	kill      func() error
}

// startChild starts a client. It has no terminal's keyboard, so an interrupt typed there reaches it only through its
// keeper; and it keeps the lock open for as long as it lives.
func startChild(program string, args []string, lock *os.File, t terminal) (*child, error) {
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = t.Out, t.Err
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

// endingOf reads what Wait returned.
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

// leave asks the client to leave its run and waits until it has ended. It is killed when enough or impatient says so;
// nil says nothing.
func (c *child) leave(enough <-chan time.Time, impatient <-chan struct{}) {
	if err := c.interrupt(); err != nil { // as where processes cannot be interrupted
		_ = c.kill() // fails only when it has ended
	}
	select {
	case <-c.ended:
		return
	case <-enough:
	case <-impatient:
	}
	_ = c.kill() // fails only when it has ended
	<-c.ended
}
