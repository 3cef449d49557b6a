package tui

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
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

var begun = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// member returns a training client of a run with five clients, after 40 rounds.
func member() *Client {
	c := &Client{}
	c.seen.runID, c.seen.id = "quickstart", "83JJ1FKjQv"
	c.options.Metrics = func() map[string]float64 {
		return map[string]float64{"train/tokens_per_sec": 7513, "train/efficency": 0.917, "train/total_tokens": 245760} //nolint:misspell // the published name
	}
	at := begun
	see := func(body event.Body) { c.See(event.Event{Time: at, Body: body}) }
	ids := []string{"83JJ1FKjQv", "7ZLpJgvnAb", "2VnaQYyoCd", "9aBcDeFgHi", "4kLmNoPqRs"}
	see(event.State{RunState: "Warmup", Step: 1, Members: ids, IsMember: true, Ready: 3})
	see(event.Ready{Step: 1, Source: "peers", Bytes: 9_632_112, Seconds: 1.5})
	for step := uint32(1); step <= 40; step++ {
		at = begun.Add(time.Duration(step) * time.Second)
		see(event.State{RunState: "RoundTrain", Step: step, Epoch: step / 25, Members: ids, Elected: []string{ids[0], ids[2]}, Quorum: 4, IsMember: true, BatchSize: 24, TotalSteps: 100, Limit: 30, Claimed: claimedOf(step)})
		see(event.Gradient{Step: step, LR: 0.004, Norm: 1.25})
		see(event.Trained{Step: step, Batch: event.Batch{uint64(24 * step), uint64(24*step + 8)}, Loss: event.Loss(2.6 + 3*math.Exp(-float64(step)/10)), Tokens: 2048, Seconds: 0.707})
		see(event.ResultSent{Step: step, Batch: event.Batch{uint64(24 * step), uint64(24*step + 8)}, Bytes: 8334})
		see(event.ResultsHeld{Step: step, Held: 3, Batches: 3})
		see(event.Applied{Step: step - 1, Counted: 3, Lost: make([]event.LostBatch, step/40)})
	}
	see(event.Checkpoint{Epoch: 1, Step: 25, Digest: "b099701dc66c7b3e", Dir: "checkpoints/quickstart-step25"})
	see(event.Uploaded{Step: 25, Place: "Hub org/run@0123abcd"})
	see(event.Evaluated{Step: 31, Task: "arc_easy", Scores: map[string]float64{"acc": 0.25, "acc_norm": 0.3125}})
	peers := func(times uint64) []Peer {
		return []Peer{
			{ID: ids[1], Sent: 120_000 * times, Received: 40_000 * times}, {ID: ids[2], Sent: 900 * times, Received: 1 << 20 * times},
			{ID: ids[3], Relayed: true}, {ID: ids[4], Sent: times, Received: times},
		}
	}
	c.count(peers(1), at)
	c.count(peers(2), at.Add(time.Second))
	return c
}

// claimedOf returns the claims of four of five witnesses about the round before a step.
func claimedOf(step uint32) *event.Claimed {
	if step < 2 {
		return nil
	}
	return &event.Claimed{Step: step - 1, Witnesses: 5, Loss: event.Claims{Count: 4, Median: 2.6 + 3*math.Exp(-float64(step-1)/10), Spread: 0.012, Far: []string{"9aBcDeFgHi"}}}
}

func (c *Client) screen(width, height int, at time.Time) string {
	return clientModel{client: c, frame: frame{width: width, height: height, at: at}}.View().Content
}

// TestScreens compares pictures of several sizes with reviewed pictures.
func TestScreens(t *testing.T) {
	now := begun.Add(47 * time.Second)
	warned := member()
	logger := slog.New(warned.Handler(slog.LevelWarn))
	logger.Info("not shown")
	for i := range 7 {
		warned.warn(Line{begun.Add(time.Duration(i) * time.Minute), slog.LevelWarn, fmt.Sprintf("peer is slow n=%d", i)})
	}
	warned.See(event.Event{Time: begun, Body: event.Misbehaved{Peer: "9aBcDeFgHi", Fault: "wrong bytes", Detail: "blob 00"}})
	outside := &Client{}
	outside.seen.runID = "quickstart"
	waiting := &Client{}
	waiting.seen.runID, waiting.seen.id = "quickstart", "83JJ1FKjQv"
	waiting.See(event.Event{Time: begun, Body: event.State{RunState: "WaitingForMembers", Step: 1, Pending: 2, Needed: 3, TotalSteps: 40}})
	ended := member()
	ended.See(event.Event{Time: now, Body: event.Failed{Error: "the host refuses: \x1b[31mwrong run id"}})
	for name, screen := range map[string]string{
		"client-80x24": member().screen(80, 24, now), "client-120x40": member().screen(120, 40, now), "client-40x10": member().screen(40, 10, now),
		"client-warned-80x24": warned.screen(80, 24, now), "client-warned-60x14": warned.screen(60, 14, now),
		"client-begins-80x24": outside.screen(80, 24, now), "client-waits-80x24": waiting.screen(80, 24, now), "client-failed-80x24": ended.screen(80, 24, now),
	} {
		golden.Compare(t, name+".txt", ansi.Strip(screen)+"\n")
	}
}

// TestScreensFit checks that no picture is larger than its terminal, unless the terminal is tiny.
func TestScreensFit(t *testing.T) {
	c := member()
	rapid.Check(t, func(t *rapid.T) {
		width, height := rapid.IntRange(1, 250).Draw(t, "width"), rapid.IntRange(1, 80).Draw(t, "height")
		for n := rapid.IntRange(0, 3).Draw(t, "warnings"); n > 0; n-- {
			c.warn(Line{begun, slog.LevelWarn, rapid.String().Draw(t, "text")})
		}
		lines := strings.Split(c.screen(width, height, begun), "\n")
		if len(lines) > max(height, minHeight) {
			t.Fatalf("%d lines on %d", len(lines), height)
		}
		for _, line := range lines {
			if w := lipgloss.Width(line); w > max(width, minWidth) {
				t.Fatalf("%d columns on %d: %q", w, width, line)
			}
			if strings.ContainsAny(ansi.Strip(line), "\x1b\r\t\a") {
				t.Fatalf("a control character: %q", line)
			}
		}
	})
}

func TestModel(t *testing.T) {
	c, interrupted := member(), 0
	c.signal = func() { interrupted++ }
	asked := 0
	c.options.Peers = func() []Peer { asked++; return nil }
	var m tea.Model = clientModel{client: c, frame: newFrame()}
	for _, message := range []tea.Msg{
		tea.WindowSizeMsg{Width: 100, Height: 30}, tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}, tea.KeyPressMsg{Code: 'x', Text: "x"}, tickMsg(begun), nil,
	} {
		m, _ = m.Update(message)
	}
	if got := m.(clientModel); got.width != 100 || got.height != 30 || !got.at.Equal(begun) || interrupted != 1 || asked != 1 {
		t.Errorf("%+v, interrupted %d times, asked %d times", got, interrupted, asked)
	}
	if !m.View().AltScreen {
		t.Error("the display overwrites the earlier text")
	}
}

// TestDisplayEnds checks that a terminal that accepts no output does not delay the training.
func TestDisplayEnds(t *testing.T) {
	var out bytes.Buffer
	c := &Client{}
	c.Close() // before its start
	c.Start(strings.NewReader(""), &out, ClientOptions{RunID: "r"})
	begun := time.Now()
	for step := range uint32(50_000) {
		c.See(event.Event{Time: begun, Body: event.Trained{Step: step, Loss: 1}})
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("50,000 events took %v", took)
	}
	c.Close()
	if len(c.now().losses) != lossesKept {
		t.Errorf("%d losses kept", len(c.now().losses))
	}
}

func TestHandler(t *testing.T) {
	c := &Client{}
	logger := slog.New(c.Handler(slog.LevelWarn)).With("a", 1).WithGroup("g").With("b", "two")
	logger.Info("no")
	logger.Error("broken", "err", errors.New("why"))
	if w := c.Warnings(); len(w) != 1 || w[0].Text != "broken a=1 g.b=two g.err=why" || w[0].Level != slog.LevelError {
		t.Errorf("got %+v; want len(w) == 1 and w[0].Text == \"broken a=1 g.b=two g.err=why\" and w[0].Level == slog.LevelError", w)
	}
}

func TestChart(t *testing.T) {
	if chart(nil, 80, 5) != nil || chart([]point{{1, 1}}, 80, 5) != nil || chart([]point{{1, 1}, {2, 2}}, 5, 5) != nil || chart([]point{{1, 1}, {2, 2}}, 80, 1) != nil {
		t.Error("a chart without data")
	}
	for _, points := range [][]point{{{1, 1}, {2, 1}}, {{9, 1}, {2, 5}}, {{4, 1e300}, {4, -1e300}}, {{1, math.MaxFloat64}, {2, -math.MaxFloat64}}, {{1, math.MaxFloat64}, {2, math.MaxFloat64}}} { // flat; steps that go back; one step
		if lines := chart(points, 20, 3); len(lines) != 3 || lipgloss.Width(lines[0]) > 20 {
			t.Errorf("%v: got %q; want len(lines) == 3 and lipgloss.Width(lines[0]) <= 20", points, lines)
		}
	}
}

// TestTrialsAreShown checks that the accused, the reason and the outcome of trials are shown.
func TestTrialsAreShown(t *testing.T) {
	c := member()
	c.See(event.Event{Time: begun, Body: event.Trial{Accused: "9aBcDeFgHi", Accuser: "83JJ1FKjQv", Fault: "wrong result", What: "the accused is ejected"}})
	story := c.seen.story
	if text := story[len(story)-1].Text; !strings.Contains(text, "9aBcDe") || !strings.Contains(text, "(wrong result): the accused is ejected") {
		t.Errorf("got %q; want text with \"9aBcDe\" and text with \"(wrong result): the accused is ejected\"", text)
	}
}
