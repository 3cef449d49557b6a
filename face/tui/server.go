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
	run
	commit  float64 // duration of the newest commit, in seconds
	journal uint64
	begun   uint64 // first known size of the journal in bytes
	looked  time.Time
	moving  []Moving
	command string // that joins the run; empty: unknown
}

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
	early map[string]hosted // names and commands of runs whose logs are not open yet, by run
}

// SetTitle sets the title, which identifies the server.
func (s *Server) SetTitle(title string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.title = title
}

// SetName sets the display name of a run.
func (s *Server) SetName(runID, name string) {
	s.set(runID, func(h *hosted) { h.name = name })
}

// Invite sets the command that joins a run.
func (s *Server) Invite(runID, command string) {
	s.set(runID, func(h *hosted) { h.command = command })
}

// set changes the data of a run, also before its log is open.
func (s *Server) set(runID string, change func(*hosted)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(runID); i >= 0 {
		change(&s.runs[i])
		return
	}
	if s.early == nil {
		s.early = map[string]hosted{}
	}
	h := s.early[runID]
	change(&h)
	s.early[runID] = h
}

// index returns the place of a run in the list, or -1. s.mu is locked.
func (s *Server) index(runID string) int {
	return slices.IndexFunc(s.runs, func(h hosted) bool { return h.runID == runID })
}

// Watch follows the event log of a run.
func (s *Server) Watch(runID string, events *event.Log) {
	s.mu.Lock()
	if s.index(runID) < 0 {
		h := s.early[runID]
		h.runID = runID
		s.runs = append(s.runs, h)
		delete(s.early, runID)
	}
	s.mu.Unlock() // an event handler may wait for s.mu while it holds the log's lock
	events.Watch(func(e event.Event) { s.see(runID, e) })
}

func (s *Server) see(runID string, e event.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.runs[s.index(runID)]
	h.see(e)
	if span, ok := e.Body.(event.Span); ok && span.Part == event.SpanCommit {
		h.commit = span.Seconds
	}
}

// Handler returns a handler that shows records at or above a level.
func (s *Server) Handler(level slog.Leveler) slog.Handler {
	return lineHandler{take: func(line Line) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, line)
		s.lines = s.lines[max(0, len(s.lines)-linesKept):]
	}, level: level}
}

// Lines returns the last lines of the log, without control characters.
func (s *Server) Lines() []Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return printed(s.lines)
}

// Start starts drawing on a terminal.
func (s *Server) Start(in io.Reader, out io.Writer, o ServerOptions) {
	s.options = o
	s.start(serverModel{server: s, frame: newFrame()}, in, out)
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
	server *Server
	frame
	chosen int    // index of the selected run
	asking string // run that may be paused or resumed; empty: no question is open
	answer string // result of the last key
}

// manual describes the keys of a server.
func (m serverModel) manual(runs []hosted) manual {
	keys := manual{leave: "end the server and its runs", asks: true, signs: [][2]string{{"*", "a witness of the round"}, {"not counted yet", "on probation, or the member's optimizer warms up"}}}
	if m.chosen < len(runs) {
		keys.link, keys.lost = runs[m.chosen].command, "This run has no invite link."
	}
	if m.server.options.Pause != nil {
		keys.keys = append(keys.keys, [2]string{"p", "pause or continue"})
	}
	if len(runs) > 1 {
		keys.keys = append(keys.keys, [2]string{"up, down", "choose a run"})
	}
	return keys
}

// pausedMsg is the result of a pause.
type pausedMsg struct{ text string }

// Init implements tea.Model.
func (m serverModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m serverModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	if key, pressed := message.(tea.KeyPressMsg); pressed {
		asked := m.asking
		m.asking, m.answer = "", "" // an old answer would cover the next question
		if asked != "" && key.String() != "ctrl+c" {
			return m.reply(asked, key.String())
		}
	}
	if m.update(message, &m.server.terminal, m.manual(m.server.now())) {
		return m, nil
	}
	switch message := message.(type) {
	case tea.KeyPressMsg:
		m.choose(message.String(), m.server.now())
	case pausedMsg:
		m.answer = message.text
	case tickMsg:
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

// reply handles the answer to the question whether to pause or resume a run.
func (m serverModel) reply(run, key string) (tea.Model, tea.Cmd) {
	if key == "y" {
		return m, m.pause(run, m.server.now())
	}
	m.answer = "nothing was changed"
	return m, nil
}

// choose handles the keys that other displays do not have.
func (m *serverModel) choose(key string, runs []hosted) {
	switch {
	case key == "up":
		m.chosen = max(0, m.chosen-1)
	case key == "down":
		m.chosen = max(0, min(len(runs)-1, m.chosen+1))
	case key == "p" && m.chosen < len(runs) && m.server.options.Pause != nil:
		m.asking = runs[m.chosen].runID
	}
}

// pause pauses a run, or resumes it if it is paused.
func (m serverModel) pause(runID string, runs []hosted) tea.Cmd {
	i := slices.IndexFunc(runs, func(h hosted) bool { return h.runID == runID })
	if i < 0 {
		return nil
	}
	pauses := runs[i].state.RunState != paused
	return func() tea.Msg {
		if err := m.server.options.Pause(runID, pauses); err != nil {
			return pausedMsg{err.Error()}
		}
		if pauses {
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
	runs := slices.Clone(s.runs)
	for i := range runs {
		runs[i].run = runs[i].copied()
	}
	return runs
}
