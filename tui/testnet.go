package tui

import (
	"fmt"
	"io"
	"strings"

	"charm.land/bubbles/v2/progress"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"github.com/psyche-go/psyche/testnet"
)

// notesKept is how many remarks stay on the screen.
const notesKept = 5

// Testnet is a display of a local network's progress. It implements testnet.Display.
type Testnet struct {
	program *tea.Program
	done    chan struct{}
}

// New starts the display on a terminal. interrupt is called when the user presses Ctrl-C.
func New(in io.Reader, out io.Writer, interrupt func()) *Testnet {
	model := testnetModel{bar: progress.New(progress.WithWidth(40)), interrupt: interrupt}
	display := &Testnet{
		program: tea.NewProgram(model, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler()),
		done:    make(chan struct{}),
	}
	go func() {
		defer close(display.done)
		if _, err := display.program.Run(); err != nil {
			fmt.Fprintf(out, "progress display: %v\n", err)
		}
	}()
	return display
}

// Update implements testnet.Display.
func (d *Testnet) Update(p testnet.Progress) { d.program.Send(p) }

// Close implements testnet.Display.
func (d *Testnet) Close() {
	d.program.Quit()
	<-d.done
}

// testnetModel is the display's state, in the sense of the Elm architecture.
type testnetModel struct {
	bar       progress.Model
	newest    testnet.Progress
	notes     []string
	interrupt func()
}

// Init implements tea.Model.
func (m testnetModel) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m testnetModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.KeyPressMsg:
		if message.String() == "ctrl+c" {
			m.interrupt()
		}
	case testnet.Progress:
		m.newest = message
		m.notes = append(m.notes, message.Notes...)
		m.notes = m.notes[max(0, len(m.notes)-notesKept):]
	}
	return m, nil
}

// View implements tea.Model.
func (m testnetModel) View() tea.View {
	p := m.newest
	var text strings.Builder
	fmt.Fprintf(&text, "%s round %d of %d, epoch %d: %s\n", m.bar.ViewAs(float64(p.Step)/float64(max(p.TotalSteps, 1))), p.Step, p.TotalSteps, p.Epoch, phaseName(p.RunState))
	loss := "no loss yet"
	if p.LossStep > 0 {
		loss = fmt.Sprintf("loss %.3f", p.Loss)
	}
	fmt.Fprintf(&text, "%s   %.0f tokens/s   %d tokens\n", loss, p.TokensRate, p.Tokens)
	clients := table.New().Border(lipgloss.RoundedBorder()).
		Headers("client", "id", "role", "loss", "sent", "restarts").
		StyleFunc(func(int, int) lipgloss.Style { return lipgloss.NewStyle().Padding(0, 1) })
	for _, client := range p.Clients {
		clients.Row(client.Name, client.ID[:min(8, len(client.ID))], role(client), fmt.Sprintf("%.3f", client.Loss),
			fmt.Sprintf("%.1f KiB", float64(client.Sent)/1024), fmt.Sprint(client.Restarts))
	}
	text.WriteString(clients.Render())
	text.WriteByte('\n')
	for _, line := range (court{p.Trials, p.Ejected}).lines(p.NameOf) {
		fmt.Fprintf(&text, "  %s\n", line)
	}
	for _, note := range m.notes {
		fmt.Fprintf(&text, "  %s\n", note)
	}
	return tea.NewView(text.String())
}

func role(client testnet.ClientProgress) string {
	switch {
	case !client.Member:
		return "waits"
	case client.Witness:
		return "trains, witness"
	default:
		return "trains"
	}
}

// phaseName says in words what the run does in a phase.
func phaseName(state string) string {
	switch state {
	case "":
		return "starting"
	case "WaitingForMembers":
		return "waiting for members"
	case "Warmup":
		return "members load the model"
	case "RoundTrain":
		return "training"
	case "RoundWitness":
		return "witnesses report"
	case "Cooldown":
		return "taking the checkpoint"
	default:
		return strings.ToLower(state)
	}
}
