package tui

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"
)

const (
	redrawEvery  = 250 * time.Millisecond // interval between frames
	closeTimeout = 2 * time.Second        // for a terminal that accepts no output
)

// terminal is the terminal of a display, from start to Close.
type terminal struct {
	program *tea.Program // nil before start
	done    chan struct{}
	pressed atomic.Bool // Ctrl-C was pressed
	signal  func()      // handler of Ctrl-C in tests; nil: interrupt the process
}

func (t *terminal) start(model tea.Model, in io.Reader, out io.Writer) {
	t.done = make(chan struct{})
	t.program = tea.NewProgram(model, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	go func() {
		defer close(t.done)
		if _, err := t.program.Run(); err != nil {
			fmt.Fprintf(out, "display: %v\n", err)
		}
	}()
}

// Close ends the display, if it was started, and restores the terminal.
func (t *terminal) Close() {
	if t.program == nil {
		return
	}
	go t.program.Quit() // it waits for a display that hangs
	select {
	case <-t.done:
	case <-time.After(closeTimeout):
	}
}

// leave interrupts the process, unless it was interrupted before.
func (t *terminal) leave() {
	if !t.pressed.Load() {
		t.interrupt()
	}
}

// interrupt handles Ctrl-C, because a terminal in raw mode sends no signal. The second Ctrl-C may
// end the process at once, so interrupt restores the terminal first.
func (t *terminal) interrupt() {
	signal := t.signal
	if signal == nil {
		signal = interruptSelf
	}
	if !t.pressed.Swap(true) {
		signal()
		return
	}
	go func() {
		t.Close()
		signal()
	}()
}

func interruptSelf() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Signal(os.Interrupt)
	}
}

type tickMsg time.Time

func tick() tea.Cmd {
	return tea.Tick(redrawEvery, func(t time.Time) tea.Msg { return tickMsg(t) })
}
