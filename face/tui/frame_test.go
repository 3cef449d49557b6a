package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/record/event"
)

// joinCommand is a command with a link of usual length.
const joinCommand = "psyche-client join 'psyche://192.0.2.7:39405/quickstart?key=83JJ1FKjQvKk8bZK3yW2WmS7v4kqL6nDgYzHn1cVd9sT&genesis=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'"

// press sends keys to a display.
func press(m tea.Model, keys ...string) tea.Model {
	for _, key := range keys {
		message := tea.KeyPressMsg{Code: rune(key[0]), Text: key}
		switch key {
		case "up":
			message = tea.KeyPressMsg{Code: tea.KeyUp}
		case "down":
			message = tea.KeyPressMsg{Code: tea.KeyDown}
		case "ctrl+c":
			message = tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
		}
		var command tea.Cmd
		if m, command = m.Update(message); command != nil {
			m, _ = m.Update(command())
		}
	}
	return m
}

// drawn returns the text of a display.
func drawn(m tea.Model) string { return ansi.Strip(m.View().Content) }

// TestLinkIsComplete checks that the command that joins a run is on the screen in full: after a key, in terminals of all
// sizes; without a key, on a server's screen while the run waits for members.
func TestLinkIsComplete(t *testing.T) {
	complete := func(m tea.Model) bool {
		return strings.Contains(strings.ReplaceAll(drawn(m), "\n", ""), joinCommand)
	}
	s, c := host(t), member()
	s.Invite("quickstart", joinCommand)
	c.options.Command = joinCommand
	for _, size := range [][2]int{{120, 40}, {80, 24}, {50, 18}, {40, 10}, {20, 10}} {
		f := frame{width: size[0], height: size[1]}
		for _, m := range []tea.Model{serverModel{server: s, frame: f}, clientModel{client: c, frame: f}} {
			if m = press(m, "l"); !complete(m) {
				t.Errorf("%v: not in\n%s", size, drawn(m))
			}
			if m = press(m, "l"); complete(m) && size[1] < tallHeight {
				t.Errorf("%v: a second key does not return", size)
			}
		}
	}
	if m := press(serverModel{server: s, frame: newFrame()}, "down", "l"); !strings.Contains(drawn(m), "This run has no invite link.") {
		t.Errorf("a run without a link:\n%s", drawn(m))
	}
	s.see("quickstart", event.Event{Time: begun, Body: event.State{RunState: "WaitingForMembers", Needed: 3, Pending: 1, TotalSteps: 40}})
	for _, size := range [][2]int{{80, 24}, {50, 18}} {
		if m := (serverModel{server: s, frame: frame{width: size[0], height: size[1]}}); !complete(m) {
			t.Errorf("while the run waits, %v: not in\n%s", size, drawn(m))
		}
	}
	early := &Server{}
	early.SetName("quickstart", "The quick brown fox")
	early.Invite("quickstart", joinCommand)
	early.Watch("quickstart", event.Unwritten())
	if m := press(serverModel{server: early, frame: newFrame()}, "l"); !complete(m) || early.runs[0].name != "The quick brown fox" {
		t.Error("the link or the name is lost if it is known before the log")
	}
}

// TestKeys checks the keys that all displays have.
func TestKeys(t *testing.T) {
	interrupts := 0
	s, c, n := host(t), member(), network(3)
	for _, each := range []*terminal{&s.terminal, &c.terminal, &n.terminal} {
		each.signal = func() { interrupts++ }
	}
	for name, m := range map[string]tea.Model{
		"server": serverModel{server: s, frame: newFrame()}, "client": clientModel{client: c, frame: newFrame()}, "testnet": testnetModel{testnet: n, frame: newFrame()},
	} {
		interrupts = 0
		golden.Compare(t, name+"-help.txt", drawn(press(m, "?"))+"\n")
		if m = press(m, "?", "x"); strings.Contains(drawn(m), "any key") {
			t.Errorf("%s: a key does not close the help", name)
		}
		if name == "server" {
			if m = press(m, "q"); !strings.Contains(drawn(m), "y or n: end the server") || interrupts != 0 {
				t.Errorf("%s: no question before the end, %d interrupts\n%s", name, interrupts, drawn(m))
			}
			if m = press(m, "n"); interrupts != 0 {
				t.Errorf("%s: another key ended it", name)
			}
			m = press(m, "q", "y")
		}
		if m = press(m, "q"); interrupts != 1 || name != "server" && !strings.Contains(drawn(m), "leaving; ctrl+c ends at once") {
			t.Errorf("%s: %d interrupts, and the screen is\n%s", name, interrupts, drawn(m))
		}
	}
}

// TestStory checks the sentences about a run, and the state in words.
func TestStory(t *testing.T) {
	r := run{names: names{"2VnaQYyoCd": "Ada"}}
	three := []string{"83JJ1FKjQv", "7ZLpJgvnAb", "2VnaQYyoCd"}
	var states strings.Builder
	for i, body := range []event.Body{
		event.State{RunState: "WaitingForMembers", Needed: 2, Pending: 1, TotalSteps: 40},
		event.State{RunState: "WaitingForMembers", Needed: 2, Pending: 2, TotalSteps: 40},
		event.State{RunState: "Warmup", Step: 1, Members: three[:2], TotalSteps: 40},
		event.State{RunState: "RoundTrain", Step: 1, Members: three[:2], TotalSteps: 40},
		event.State{RunState: "RoundWitness", Step: 1, Members: three[:2], TotalSteps: 40, Pausing: true},
		event.State{RunState: "Cooldown", Step: 2, Members: three[:2], TotalSteps: 40, Pausing: true},
		event.State{RunState: "Paused", Step: 2, TotalSteps: 40, Digest: "b099701dc66c7b3e"},
		event.State{RunState: "WaitingForMembers", Step: 2, Epoch: 1, Needed: 2, Pending: 0, TotalSteps: 40, Digest: "b099701dc66c7b3e"},
		event.State{RunState: "Warmup", Step: 2, Epoch: 1, Members: three, TotalSteps: 40, Digest: "b099701dc66c7b3e"},
		event.State{RunState: "RoundTrain", Step: 2, Epoch: 1, Members: three[1:], TotalSteps: 40, Digest: "b099701dc66c7b3e"},
		event.Trial{Accused: "2VnaQYyoCd", Accuser: "7ZLpJgvnAb", Fault: "wrong result", What: event.TrialBegins},
		event.Ejected{Client: "2VnaQYyoCd", Until: 3, Reason: "a jury found it guilty"},
		event.State{RunState: "RoundTrain", Step: 3, Epoch: 1, Members: nil, TotalSteps: 40, Digest: "b099701dc66c7b3e"},
		event.State{RunState: "Finished", Step: 41, Epoch: 1, TotalSteps: 40, Digest: "b099701dc66c7b3e"},
	} {
		r.see(event.Event{Time: begun.Add(time.Duration(i) * time.Minute), Body: body})
		if _, moved := body.(event.State); moved {
			fmt.Fprintln(&states, words(r.state))
		}
	}
	for _, line := range r.story {
		fmt.Fprintln(&states, line.At.Format(time.TimeOnly), line.Text)
	}
	golden.Compare(t, "story.txt", states.String())
}

// TestProgress checks that a narrow screen shows the most important parts of the progress, and that a long run ends on
// another day.
func TestProgress(t *testing.T) {
	r := run{began: begun.Add(-time.Minute), left: 30 * time.Hour, state: event.State{RunState: "RoundTrain", Step: 41, TotalSteps: 100}}
	for width, want := range map[int]string{
		80: "██░░░░ 40 %  40 of 100 rounds  1m0s elapsed  30.0 h left, ends about 2 Mar 18:00", 70: "████████░░░░░░░░░░░░ 40 %  40 of 100 rounds  1m0s elapsed  30.0 h left", 100: "████████░░░░░░░░░░░░ 40 %  40 of 100 rounds  1m0s elapsed  30.0 h left, ends about 2 Mar 18:00",
		40: "███░░░░░ 40 %  1m0s elapsed  30.0 h left", 30: "████░░░░░░░░ 40 %  30.0 h left", 10: "██░░░ 40 %",
	} {
		if got := r.progress(width, begun); got != want || lipgloss.Width(got) > width {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}
