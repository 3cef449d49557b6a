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
	d.start(testnetModel{testnet: d, frame: newFrame()}, in, out)
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
// everything except the frame.
type testnetModel struct {
	testnet *Testnet
	frame
}

// testnetManual describes the keys of a network's display.
var testnetManual = manual{
	leave: "end the network; the epoch ends with a checkpoint first",
	signs: [][2]string{{"*", "a witness of the round"}, {"not counted yet", "on probation, or the client's optimizer warms up"}, {"waits", "joins at the next epoch"}, {"gave up", "the process ended with an error"}},
}

// Init implements tea.Model.
func (m testnetModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m testnetModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	m.update(message, &m.testnet.terminal, testnetManual)
	if _, ticks := message.(tickMsg); ticks {
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
