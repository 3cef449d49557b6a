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
	redrawEvery  = 250 * time.Millisecond // the time between two pictures
	closeTimeout = 2 * time.Second        // for a terminal that takes nothing
)

// terminal is the terminal that a display draws on from start to Close.
type terminal struct {
	program *tea.Program // nil before start
	done    chan struct{}
	pressed atomic.Bool // Ctrl-C was
	signal  func()      // what Ctrl-C does, in tests; nil: the process is interrupted
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

// Close ends the display, if it was started, and gives the terminal back.
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

// interrupt is what Ctrl-C does, which a terminal that is drawn on does not do by itself. The
// second one may end the process at once, so the terminal is given back before.
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
