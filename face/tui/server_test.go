package tui

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/record/event"
)

// host is a server with three runs.
func host(t *testing.T) *Server {
	t.Helper()
	s := &Server{}
	s.SetTitle("0.0.0.0:39405  key 83JJ1FKj")
	s.options.Pause = func(string, bool) error { return nil }
	append1 := func(l *event.Log, bodies ...event.Body) {
		for _, body := range bodies {
			if err := l.Append(body); err != nil {
				t.Fatal(err)
			}
		}
	}
	ids := []string{"83JJ1FKjQv", "7ZLpJgvnAb", "2VnaQYyoCd", "9aBcDeFgHi", "4kLmNoPqRs"}
	for i, state := range []event.State{
		{RunState: "RoundTrain", Step: 40, Epoch: 1, Members: ids, Elected: ids[:3], Witnesses: 2, Quorum: 3, Pending: 1, BatchSize: 24, TotalSteps: 100, Limit: 30, Digest: "b099701dc66c7b3e", Claimed: claimedOf(40)},
		{RunState: "Warmup", Step: 1, Members: ids[:2], Ready: 1, TotalSteps: 50, Limit: 60},
		{RunState: "Paused", Step: 7, Epoch: 2, TotalSteps: 50},
	} {
		log := event.Unwritten()
		name := []string{"quickstart", "second", "third"}[i]
		s.Watch(name, log)
		s.Watch(name, log) // watching a run again does not add it again
		append1(log, state, event.Span{Part: event.SpanCommit, Seconds: 0.0031})
		s.runs[i].since = begun
	}
	s.look(map[string]uint64{"quickstart": 100_000, "second": 5}, begun)
	s.look(map[string]uint64{"quickstart": 160_000, "second": 5}, begun.Add(time.Minute))
	logger := slog.New(s.Handler(slog.LevelInfo))
	logger.Debug("not this")
	for i := range 3 {
		logger.Info("joined", "n", i)
	}
	for i := range s.lines {
		s.lines[i].At = begun
	}
	return s
}

func TestServerScreens(t *testing.T) {
	at := begun.Add(time.Minute)
	for name, m := range map[string]serverModel{
		"server-80x24":     {frame: frame{width: 80, height: 24}},
		"server-120x40":    {frame: frame{width: 120, height: 40}, chosen: 1},
		"server-40x10":     {frame: frame{width: 40, height: 10}, chosen: 2},
		"server-asks":      {frame: frame{width: 80, height: 12}, asking: "quickstart"},
		"server-asks-back": {frame: frame{width: 80, height: 24}, asking: "third", chosen: 2},
	} {
		m.server, m.at = host(t), at
		golden.Compare(t, name+".txt", ansi.Strip(m.render())+"\n")
	}
	golden.Compare(t, "server-empty.txt", ansi.Strip(serverModel{server: &Server{}, frame: newFrame()}.render())+"\n")
	alone := host(t)
	alone.SetName("quickstart", "The quick brown fox")
	for _, name := range []event.Named{{Client: "2VnaQYyoCd", Name: "Ada"}, {Client: "9aBcDeFgHi", Name: "Grace"}} {
		alone.see("quickstart", event.Event{Time: begun, Body: name})
	}
	alone.runs = alone.runs[:1]
	alone.runs[0].state.Uncounted, alone.runs[0].state.Idle = []string{"9aBcDeFgHi"}, []string{"4kLmNoPqRs"}
	golden.Compare(t, "server-alone-80x24.txt", ansi.Strip(serverModel{server: alone, frame: frame{width: 80, height: 24, at: at}}.render())+"\n")
}

func TestServerScreensFit(t *testing.T) {
	s := host(t)
	rapid.Check(t, func(t *rapid.T) {
		m := serverModel{
			server: s, frame: frame{width: rapid.IntRange(1, 200).Draw(t, "width"), height: rapid.IntRange(1, 60).Draw(t, "height"), at: begun, page: page(rapid.IntRange(0, 3).Draw(t, "page"))},
			chosen: rapid.IntRange(0, 5).Draw(t, "chosen"), answer: rapid.String().Draw(t, "answer"),
		}
		lines := strings.Split(m.render(), "\n")
		if len(lines) > max(m.height, minHeight) {
			t.Fatalf("%d lines on %d", len(lines), m.height)
		}
		for _, line := range lines {
			if w := lipgloss.Width(line); w > max(m.width, minWidth) {
				t.Fatalf("%d columns on %d: %q", w, m.width, line)
			}
		}
	})
}

// TestQuestionsAreShown checks that the screen shows each open question: an earlier answer must not hide the
// question whether to end the server, and no question may stay after Ctrl-C.
func TestQuestionsAreShown(t *testing.T) {
	const end, pause, leaving = "y or n: end the server", "y or n: pause run quickstart", "leaving; ctrl+c ends at once"
	for _, height := range []int{minHeight, 24} {
		for _, c := range []struct{ keys, want string }{
			{"p", pause},
			{"p n", "nothing was changed"},
			{"p n q", end},
			{"p n p", pause},
			{"q ctrl+c", leaving},
			{"p ctrl+c", leaving},
			{"p n ctrl+c", leaving},
			{"? ctrl+c", leaving},
			{"q y q", leaving},
		} {
			s, interrupts := host(t), 0
			s.signal = func() { interrupts++ }
			m := press(serverModel{server: s, frame: frame{width: 80, height: height}}, strings.Fields(c.keys)...)
			if got := drawn(m); !strings.Contains(got, c.want) || strings.Count(got, "y or n") != strings.Count(c.want, "y or n") {
				t.Errorf("after %s, %d lines: want %q in\n%s", c.keys, height, c.want, got)
			}
			if want := strings.Count(c.want, "leaving"); interrupts != want {
				t.Errorf("after %s: %d interrupts, want %d", c.keys, interrupts, want)
			}
		}
	}
}

// TestLinesArePrintable checks that the lines that remain after a display contain no control characters.
func TestLinesArePrintable(t *testing.T) {
	s, c := &Server{}, &Client{}
	const text = "\x1b]0;owned\a\x1b[31mred\u202e\nnext"
	slog.New(s.Handler(slog.LevelInfo)).Info("joined", "run", text)
	slog.New(c.Handler(slog.LevelInfo)).Info("joined", "run", text)
	for _, lines := range [][]Line{s.Lines(), c.Warnings()} {
		if len(lines) != 1 || lines[0].Text != "joined run=?]0;owned??[31mred? next" {
			t.Errorf("got %+q; want len(lines) == 1 and lines[0].Text == \"joined run=?]0;owned??[31mred? next\"", lines)
		}
	}
}

// TestPauseAsksFirst checks that two keys pause a run and that one key does nothing.
func TestPauseAsksFirst(t *testing.T) {
	var did []string
	s := host(t)
	s.signal = func() { did = append(did, "interrupt") }
	s.options.Journals = func() map[string]uint64 { return nil }
	s.options.Pause = func(run string, paused bool) error {
		did = append(did, fmt.Sprint(run, paused))
		if run == "second" {
			return errors.New("the key has no right to that")
		}
		return nil
	}
	var m tea.Model = serverModel{server: s, frame: newFrame()}
	answer := func(keys ...string) string {
		m = press(m, keys...)
		return m.(serverModel).answer
	}
	if got := answer("p", "n"); len(did) != 0 || got != "nothing was changed" {
		t.Errorf("did %v, reported %q", did, got)
	}
	if got := answer("y", "p", "y"); strings.Join(did, " ") != "quickstarttrue" {
		t.Errorf("did %v, reported %q", did, got)
	} else {
		golden.Message(t, "pause", errors.New(got))
	}
	if got := answer("up", "down", "p", "y"); did[len(did)-1] != "secondtrue" {
		t.Errorf("did %v, reported %q", did, got)
	} else {
		golden.Message(t, "refused pause", errors.New(got))
	}
	if got := answer("down", "down", "p", "y"); did[len(did)-1] != "thirdfalse" {
		t.Errorf("did %v, reported %q", did, got)
	} else {
		golden.Message(t, "resume", errors.New(got))
	}
	if answer("ctrl+c"); strings.Join(did[2:], " ") != "thirdfalse interrupt" {
		t.Errorf("did %v", did)
	}
	m, _ = m.Update(tickMsg(begun))
	m, _ = m.Update(tea.WindowSizeMsg{Width: 99, Height: 31})
	if got := m.(serverModel); got.width != 99 || !got.at.Equal(begun) {
		t.Errorf("got %+v; want got.width == 99 and got.at.Equal(begun)", got)
	}
}
