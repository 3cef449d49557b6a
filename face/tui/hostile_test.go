package tui

import (
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/face/testnet"
	"github.com/psyche-go/psyche/record/event"
)

// hostile are texts that could damage a screen.
var hostile = []string{
	"\x1b[31mred\x1b[0m", "\x1b]0;title\a", "\r\n\t\x00", "\u202eevil", "\u200b\u2060", "\xff\xfe", "שלום עולם", "🇩🇪🇩🇪🇩🇪",
	strings.Repeat("宽", 40), strings.Repeat("👨‍👩‍👧‍👦", 20), strings.Repeat("x", 10<<10), strings.Repeat("e\u0301\u0301", 5000),
}

// TestHostileTextsFit shows such texts in all places of all displays, on terminals of any size.
func TestHostileTextsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func() string { return rapid.SampledFrom(hostile).Draw(t, "text") }
		a, b := "83JJ1FKjQv", "7ZLpJgvnAb"
		state := event.State{RunState: "RoundTrain", Step: 3, Members: []string{a, b}, Elected: []string{a}, TotalSteps: 10, Claimed: claimedOf(3)}
		fewer := state
		fewer.Members = []string{a}
		c, s, n := &Client{}, &Server{}, &Testnet{}
		c.options.Command, c.seen.runID, c.seen.id = text(), text(), a
		c.SetName(text())
		s.SetTitle(text())
		runID := text()
		s.Watch(runID, event.Unwritten())
		s.SetName(runID, text())
		s.Invite(runID, text())
		for _, body := range []event.Body{
			state, event.Named{Client: a, Name: text()}, event.Named{Client: b, Name: text()}, fewer,
			event.Ejected{Client: b, Until: 4, Reason: text()}, event.Misbehaved{Peer: b, Fault: text(), Detail: text()},
			event.Trials{Open: []event.OpenTrial{{Accused: b, Accuser: a, Fault: text()}}}, event.Trial{Accused: b, Accuser: a, Fault: text(), What: text()},
			event.Evaluated{Task: text(), Scores: map[string]float64{text(): 1}}, event.Failed{Error: text()},
		} {
			e := event.Event{Time: begun, Body: body}
			c.See(e)
			s.see(runID, e)
		}
		n.Update(testnet.Progress{RunID: text(), Name: text(), State: state, Notes: []string{text()}, Clients: []testnet.ClientProgress{{Name: text(), Attack: text(), Member: true}}})
		f := frame{width: rapid.IntRange(0, 130).Draw(t, "width"), height: rapid.IntRange(0, 50).Draw(t, "height"), at: begun.Add(time.Minute), page: page(rapid.IntRange(0, 3).Draw(t, "page"))}
		for _, drawn := range []string{clientModel{client: c, frame: f}.render(), serverModel{server: s, frame: f}.render(), testnetModel{testnet: n, frame: f}.render()} {
			lines := strings.Split(drawn, "\n")
			if len(lines) > max(f.height, minHeight) {
				t.Fatalf("%d lines on %d", len(lines), f.height)
			}
			for _, line := range lines {
				if w := lipgloss.Width(line); w > max(f.width, minWidth) {
					t.Fatalf("%d columns on %d: %q", w, f.width, line)
				}
				if strings.Contains(line, hostile[0]) || strings.ContainsAny(line, "\r\a\x00\u202e") {
					t.Fatalf("control characters in %q", line)
				}
			}
		}
	})
}

// TestLongEventsLeaveRoom checks that a long event does not hide the others.
func TestLongEventsLeaveRoom(t *testing.T) {
	first, long := Line{At: begun, Text: "the first event"}, Line{At: begun.Add(time.Second), Text: strings.Repeat("long ", 2000)}
	lines := events(80, []Line{first, long})
	if last := lines[len(lines)-1]; len(lines) != 10 || !strings.HasSuffix(last, first.Text) {
		t.Errorf("%d lines; the last one is %q", len(lines), last)
	}
}
