package tui

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/psyche-go/psyche/event"
)

const (
	redrawEvery  = 250 * time.Millisecond // the time between two pictures
	closeTimeout = 2 * time.Second        // for a terminal that takes nothing
)

// ClientOptions say what a client's display shows besides events.
type ClientOptions struct {
	RunID, ID string
	Interrupt func()                    // the user pressed Ctrl-C
	Figures   func() map[string]float64 // newest values of figures
	Peers     func() []Peer             // may be nil
}

// Client is the display of a client in a run. Its methods never wait for the terminal.
type Client struct {
	follower
	options ClientOptions
	program *tea.Program
	done    chan struct{}
}

// NewClient makes a display, which follows from now on; Start shows it.
func NewClient() *Client { return &Client{done: make(chan struct{})} }

// Start begins to draw on a terminal.
func (c *Client) Start(in io.Reader, out io.Writer, o ClientOptions) {
	c.options = o
	c.mu.Lock()
	c.seen.runID, c.seen.id = o.RunID, o.ID
	c.mu.Unlock()
	c.program = tea.NewProgram(clientModel{client: c, width: 80, height: 24}, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	go func() {
		defer close(c.done)
		if _, err := c.program.Run(); err != nil {
			fmt.Fprintf(out, "display: %v\n", err)
		}
	}()
}

// See takes an event, as a function for event.Log's Watch.
func (c *Client) See(e event.Event) { c.follower.See(e) }

// Warnings are the last lines of the log.
func (c *Client) Warnings() []Line { return c.now().warnings }

// Close ends the display, if it was started, and gives the terminal back.
func (c *Client) Close() {
	if c.program == nil {
		return
	}
	go c.program.Quit() // it waits for a display that hangs
	select {
	case <-c.done:
	case <-time.After(closeTimeout):
	}
}

// clientModel is the display's state, in the sense of the Elm architecture: everything but the
// size of the terminal is in the follower.
type clientModel struct {
	client        *Client
	width, height int
	at            time.Time
}

type tickMsg time.Time

func tick() tea.Cmd {
	return tea.Tick(redrawEvery, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// Init implements tea.Model.
func (m clientModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m clientModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
	case tea.KeyPressMsg:
		if message.String() == "ctrl+c" {
			m.client.options.Interrupt()
		}
	case tickMsg:
		m.at = time.Time(message)
		if m.client.options.Peers != nil {
			m.client.count(m.client.options.Peers(), m.at)
		}
		return m, tick()
	}
	return m, nil
}

// View implements tea.Model.
func (m clientModel) View() tea.View {
	s := m.client.now()
	if m.client.options.Figures != nil {
		s.figures = m.client.options.Figures()
	}
	view := tea.NewView(s.render(m.width, m.height, m.at))
	view.AltScreen = true
	view.WindowTitle = "psyche-client"
	return view
}

// Handler returns a handler that shows records of a level or more.
func (c *Client) Handler(level slog.Leveler) slog.Handler {
	return lineHandler{take: c.take, level: level}
}
