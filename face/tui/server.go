package tui

import (
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/psyche-go/psyche/record/event"
)

// ServerOptions configure a server's display and its keys.
type ServerOptions struct {
	Journals func() map[string]uint64              // bytes of each run's journal
	Pause    func(runID string, paused bool) error // pauses or resumes a run; it may block for a while
	Moving   func() map[string][]Moving            // transfers that members of each run report; nil: there are no reports
}

// Moving is a model download or a checkpoint upload of a member.
type Moving struct {
	Member string
	event.Transfer
}

// hosted is the displayed data of a run of the server.
type hosted struct {
	runID   string
	state   event.State
	court   court
	names   names
	since   time.Time // start of the phase
	commit  float64   // duration of the newest commit, in seconds
	journal uint64
	begun   uint64 // first known size of the journal in bytes
	looked  time.Time
	moving  []Moving
}

// over reports whether the run is finished, so that clients cannot join.
func (h hosted) over() bool { return h.state.RunState == "Finished" }

// grows returns the growth of the journal per minute.
func (h hosted) grows(now time.Time) float64 {
	took := now.Sub(h.looked).Minutes()
	if h.looked.IsZero() || took <= 0 || h.journal < h.begun {
		return 0
	}
	return float64(h.journal-h.begun) / took
}

// Server is the display of a server and its runs. It collects events from its creation on, and
// Start shows it. Its methods never wait for the terminal.
type Server struct {
	terminal
	options ServerOptions

	mu    sync.Mutex
	title string
	runs  []hosted
	lines []Line
	joins map[string]string // commands that join runs, by run
}

// SetTitle sets the title, which identifies the server.
func (s *Server) SetTitle(title string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.title = title
}

// Invite sets the command that joins a run.
func (s *Server) Invite(runID, command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joins == nil {
		s.joins = map[string]string{}
	}
	s.joins[runID] = command
}

// command returns the command that joins a run, or "" if it is unknown.
func (s *Server) command(runID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.joins[runID]
}

// Watch follows the event log of a run.
func (s *Server) Watch(runID string, events *event.Log) {
	s.mu.Lock()
	if !slices.ContainsFunc(s.runs, func(h hosted) bool { return h.runID == runID }) {
		s.runs = append(s.runs, hosted{runID: runID})
	}
	s.mu.Unlock() // an event handler may wait for s.mu while it holds the log's lock
	events.Watch(func(e event.Event) { s.see(runID, e) })
}

func (s *Server) see(runID string, e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.runs[slices.IndexFunc(s.runs, func(h hosted) bool { return h.runID == runID })]
	switch body := e.Body.(type) {
	case event.State:
		if body.RunState != h.state.RunState || body.Step != h.state.Step && body.RunState != "WaitingForMembers" {
			h.since = e.Time
		}
		h.state = body
	case event.Trials, event.Ejected:
		h.court.see(body)
	case event.Named:
		h.names = h.names.with(body)
	case event.Span:
		if body.Part == event.SpanCommit {
			h.commit = body.Seconds
		}
	}
}

// Handler returns a handler that shows records at or above a level.
func (s *Server) Handler(level slog.Leveler) slog.Handler {
	return lineHandler{take: func(line Line) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, line)
		s.lines = s.lines[max(0, len(s.lines)-warningsKept):]
	}, level: level}
}

// Lines returns the last lines of the log.
func (s *Server) Lines() []Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

// Start starts drawing on a terminal.
func (s *Server) Start(in io.Reader, out io.Writer, o ServerOptions) {
	s.options = o
	s.start(serverModel{server: s, width: 80, height: 24}, in, out)
}

// look updates the sizes of journals.
func (s *Server) look(sizes map[string]uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.runs {
		h := &s.runs[i]
		size, known := sizes[h.runID]
		if !known {
			continue
		}
		if h.looked.IsZero() {
			h.begun, h.looked = size, now
		}
		h.journal = size
	}
}

// move updates the transfers of members.
func (s *Server) move(moving map[string][]Moving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.runs {
		s.runs[i].moving = moving[s.runs[i].runID]
	}
}

// serverModel is the display's state in the sense of the Elm architecture.
type serverModel struct {
	server        *Server
	width, height int
	at            time.Time
	chosen        int    // index of the selected run
	asking        string // run that may be paused or resumed; empty: no question is open
	answer        string // result of the last key
	inviting      bool   // the screen shows only the command that joins the run
}

// pausedMsg is the result of a pause.
type pausedMsg struct{ text string }

// Init implements tea.Model.
func (m serverModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m serverModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
	case tea.KeyPressMsg:
		return m.press(message.String())
	case pausedMsg:
		m.answer = message.text
	case tickMsg:
		m.at = time.Time(message)
		if m.server.options.Journals != nil {
			m.server.look(m.server.options.Journals(), m.at)
		}
		if m.server.options.Moving != nil {
			m.server.move(m.server.options.Moving())
		}
		return m, tick()
	}
	return m, nil
}

// press handles a key.
func (m serverModel) press(key string) (tea.Model, tea.Cmd) {
	runs := m.server.now()
	switch {
	case key == "ctrl+c":
		m.server.interrupt()
	case m.inviting:
		m.inviting = false
	case m.asking != "":
		run := m.asking
		m.asking = ""
		if key == "y" {
			return m, m.pause(run, runs)
		}
		m.answer = "nothing was changed"
	case key == "up":
		m.chosen = max(0, m.chosen-1)
	case key == "down":
		m.chosen = max(0, min(len(runs)-1, m.chosen+1))
	case key == "l":
		m.inviting = m.chosen < len(runs) && m.server.command(runs[m.chosen].runID) != ""
	case key == "p" && m.chosen < len(runs) && m.server.options.Pause != nil:
		m.asking, m.answer = runs[m.chosen].runID, ""
	}
	return m, nil
}

// pause pauses a run, or resumes it if it is paused.
func (m serverModel) pause(runID string, runs []hosted) tea.Cmd {
	i := slices.IndexFunc(runs, func(h hosted) bool { return h.runID == runID })
	if i < 0 {
		return nil
	}
	paused := runs[i].state.RunState != "Paused"
	return func() tea.Msg {
		if err := m.server.options.Pause(runID, paused); err != nil {
			return pausedMsg{err.Error()}
		}
		if paused {
			return pausedMsg{"run " + runID + " pauses as soon as its epoch allows"}
		}
		return pausedMsg{"run " + runID + " continues"}
	}
}

// View implements tea.Model.
func (m serverModel) View() tea.View {
	view := tea.NewView(m.render())
	view.AltScreen = true
	view.WindowTitle = "psyche server"
	return view
}

// now returns the runs.
func (s *Server) now() []hosted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runs)
}
