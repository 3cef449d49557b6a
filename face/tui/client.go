package tui

import (
	"io"
	"log/slog"

	tea "charm.land/bubbletea/v2"

	"github.com/psyche-go/psyche/record/event"
)

// ClientOptions configure a client's display.
type ClientOptions struct {
	RunID, ID string
	Command   string                    // with which others join; empty: unknown
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
	c.start(clientModel{client: c, frame: newFrame()}, in, out)
}

// SetName sets the display name of the run.
func (c *Client) SetName(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen.name = name
}

// See processes an event. It is an argument for event.Log's Watch.
func (c *Client) See(e event.Event) { c.see(e) }

// Warnings returns the last lines of the log, without control characters.
func (c *Client) Warnings() []Line { return printed(c.now().warnings) }

// clientModel is the display's state in the sense of the Elm architecture. The follower holds
// everything except the frame.
type clientModel struct {
	client *Client
	frame
}

// manual describes the keys of a client.
func (m clientModel) manual() manual {
	return manual{
		leave: "leave the run", link: m.client.options.Command, lost: "This client was started without an invite link. psyche run invite prints the link.",
		signs: [][2]string{
			{"*", "a witness of the round"}, {"not counted yet", "on probation, or the member's optimizer warms up"},
			{"waits", "joins at the next epoch"}, {"(you)", "the whole traffic of this client"},
		},
	}
}

// Init implements tea.Model.
func (m clientModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m clientModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	if m.update(message, &m.client.terminal, m.manual()) {
		return m, nil
	}
	if _, ticks := message.(tickMsg); !ticks {
		return m, nil
	}
	if m.client.options.Peers != nil {
		m.client.count(m.client.options.Peers(), m.at)
	}
	return m, tick()
}

// View implements tea.Model.
func (m clientModel) View() tea.View {
	view := tea.NewView(m.render())
	view.AltScreen = true
	view.WindowTitle = "psyche-client"
	return view
}

// render draws the display.
func (m clientModel) render() string {
	if page, covers := m.cover(m.manual()); covers {
		return page
	}
	s := m.client.now()
	if m.client.options.Metrics != nil {
		s.metrics = m.client.options.Metrics()
	}
	width, height := m.size()
	l := s.layout(width, height, m.at)
	l.keys = m.foot(m.manual(), &m.client.terminal)
	return l.draw(width, height)
}

// Handler returns a handler that shows records at or above a level.
func (c *Client) Handler(level slog.Leveler) slog.Handler {
	return lineHandler{take: c.take, level: level}
}
