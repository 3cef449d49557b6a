package tui

import (
	"fmt"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/psyche-go/psyche/face/testnet"
)

// remarksKept is the number of remarks that a display keeps and prints at the end.
const remarksKept = 50

// Testnet is a display of a local network's progress. It implements testnet.Display. Its methods
// never wait for the terminal.
type Testnet struct {
	terminal
	out  io.Writer
	left sync.Once // the remarks were printed after the display ended

	mu      sync.Mutex
	newest  testnet.Progress
	remarks []Line // newest last
}

// New starts the display on a terminal. It calls interrupt if the user presses Ctrl-C.
func New(in io.Reader, out io.Writer, interrupt func()) *Testnet {
	d := &Testnet{out: out}
	d.signal = interrupt
	d.start(testnetModel{testnet: d, width: 80, height: 24}, in, out)
	return d
}

// Update implements testnet.Display.
func (t *Testnet) Update(p testnet.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.newest = p
	for _, note := range p.Notes {
		t.remarks = append(t.remarks, Line{At: time.Now(), Text: note})
	}
	t.remarks = t.remarks[max(0, len(t.remarks)-remarksKept):]
}

// Close implements testnet.Display. It restores the terminal and prints the remarks.
func (t *Testnet) Close() {
	t.terminal.Close()
	t.left.Do(func() {
		_, remarks := t.now()
		for _, remark := range remarks {
			_, _ = fmt.Fprintf(t.out, "%s %s\n", remark.At.Format(time.TimeOnly), printable(remark.Text))
		}
	})
}

// now returns the data to show.
func (t *Testnet) now() (testnet.Progress, []Line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest, t.remarks[:len(t.remarks):len(t.remarks)]
}

// testnetModel is the display's state in the sense of the Elm architecture. Testnet holds
// everything except the size of the terminal.
type testnetModel struct {
	testnet       *Testnet
	width, height int
	at            time.Time
}

// Init implements tea.Model.
func (m testnetModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m testnetModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
	case tea.KeyPressMsg:
		if message.String() == "ctrl+c" {
			m.testnet.interrupt()
		}
	case tickMsg:
		m.at = time.Time(message)
		return m, tick()
	}
	return m, nil
}

// View implements tea.Model.
func (m testnetModel) View() tea.View {
	view := tea.NewView(m.render())
	view.AltScreen = true
	view.WindowTitle = "psyche testnet"
	return view
}
