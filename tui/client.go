package tui

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/psyche-go/psyche/event"
)

// redrawEvery is the time between two pictures.
const redrawEvery = 250 * time.Millisecond

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

// NewClient starts the display on a terminal.
func NewClient(in io.Reader, out io.Writer, o ClientOptions) *Client {
	c := &Client{options: o, done: make(chan struct{})}
	c.seen.runID, c.seen.id = o.RunID, o.ID
	c.program = tea.NewProgram(clientModel{client: c, width: 80, height: 24}, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	go func() {
		defer close(c.done)
		if _, err := c.program.Run(); err != nil {
			fmt.Fprintf(out, "display: %v\n", err)
		}
	}()
	return c
}

// See takes an event, as a function for event.Log's Watch.
func (c *Client) See(e event.Event) { c.follower.See(e) }

// SetRun tells how many steps the run has, and how long its phases last at most.
func (c *Client) SetRun(steps uint32, limits map[string]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.total, c.seen.limits = steps, limits
}

// Warnings are the last lines of the log.
func (c *Client) Warnings() []Line { return c.now().warnings }

// Close ends the display and gives the terminal back.
func (c *Client) Close() {
	c.program.Quit()
	<-c.done
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
	return lineHandler{to: &c.follower, level: level}
}
