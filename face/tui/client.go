package tui

import (
	"io"
	"log/slog"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/psyche-go/psyche/record/event"
)

// ClientOptions configure a client's display.
type ClientOptions struct {
	RunID, ID string
	Metrics   func() map[string]float64 // newest values of metrics
	Peers     func() []Peer             // may be nil
}

// Client is the display of a client in a run. It collects events from its creation on, and Start
// shows it. Its methods never wait for the terminal.
type Client struct {
	follower
	terminal
	options ClientOptions
}

// Start starts drawing on a terminal.
func (c *Client) Start(in io.Reader, out io.Writer, o ClientOptions) {
	c.options = o
	c.mu.Lock()
	c.seen.runID, c.seen.id = o.RunID, o.ID
	c.mu.Unlock()
	c.start(clientModel{client: c, width: 80, height: 24}, in, out)
}

// See processes an event. It is an argument for event.Log's Watch.
func (c *Client) See(e event.Event) { c.follower.See(e) }

// Warnings returns the last lines of the log.
func (c *Client) Warnings() []Line { return c.now().warnings }

// clientModel is the display's state in the sense of the Elm architecture. The follower holds
// everything except the size of the terminal.
type clientModel struct {
	client        *Client
	width, height int
	at            time.Time
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
			m.client.interrupt()
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
	if m.client.options.Metrics != nil {
		s.metrics = m.client.options.Metrics()
	}
	view := tea.NewView(s.render(m.width, m.height, m.at))
	view.AltScreen = true
	view.WindowTitle = "psyche-client"
	return view
}

// Handler returns a handler that shows records at or above a level.
func (c *Client) Handler(level slog.Leveler) slog.Handler {
	return lineHandler{take: c.take, level: level}
}
