package tui

import (
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/record/event"
)

// trials are four trials: one against 83JJ1FKj, one of its own accusations, one with it on the
// jury, and a fourth.
var trials = event.Trials{Open: []event.OpenTrial{
	{Accused: "83JJ1FKjQv", Accuser: "7ZLpJgvnAb", Fault: "wrong result", Step: 38, Since: 39, Until: 45, Jury: 9, Guilty: 2, Innocent: 4},
	{Accused: "2VnaQYyoCd", Accuser: "83JJ1FKjQv", Fault: "opens to nobody", Step: 33, Since: 40, Until: 46},
	{Accused: "9aBcDeFgHi", Accuser: "4kLmNoPqRs", Fault: "opens to nobody", Step: 31, Since: 39, Until: 45, Jury: 9, Guilty: 5, Juror: true},
	{Accused: "5tUvWxYzAb", Accuser: "6cDeFgHiJk", Fault: "wrong result", Step: 39, Since: 40, Until: 46, Jury: 9, Juror: true, Voted: true},
}}

var ejected = []event.Ejected{
	{Client: "1Older", Until: 2, Reason: "by the main authority"}, {Client: "9aBcDeFgHi", Until: 3, Reason: "it signed two results"},
	{Client: "7ZLpJgvnAb", Until: 4, Reason: "it made a false accusation"}, {Client: "2VnaQYyoCd", Until: 5, Reason: "a jury found it \x1b[31mguilty"},
}

// TestCourtScreens checks that the screens show the members that audit, are on trial, are jurors or
// were ejected.
func TestCourtScreens(t *testing.T) {
	at := begun.Add(47 * time.Second)
	busy := member()
	passed := event.Audit{Step: 38, Trainer: "4kLmNoPqRs", Outcome: "passed"}
	for _, body := range []event.Body{trials, passed, event.Audit{Step: 33, Trainer: "7ZLpJgvnAb", Outcome: "unclear"}, passed, event.Transfer{What: event.TransferUpload, Step: 25, Bytes: 3 << 20, Total: 9 << 20}} {
		busy.See(event.Event{Time: at, Body: body})
	}
	busy.See(event.Event{Time: at, Body: event.Accused{Step: 33, Client: "2VnaQYyoCd", Fault: "opens to nobody", Detail: "asked six times"}})
	busy.See(event.Event{Time: at, Body: event.Trial{Accused: "83JJ1FKjQv", Accuser: "7ZLpJgvnAb", Fault: "wrong result", What: "begins"}})
	out := &Client{}
	out.seen.runID, out.seen.id = "quickstart", "2VnaQYyoCd"
	out.See(event.Event{Time: begun, Body: event.State{RunState: "RoundTrain", Step: 41, Epoch: 1, TotalSteps: 100, Limit: 30}})
	arrives := &Client{}
	arrives.seen.runID, arrives.seen.id = "quickstart", "83JJ1FKjQv"
	arrives.See(event.Event{Time: begun, Body: event.State{RunState: "Warmup", Step: 26, Epoch: 1, Members: []string{"83JJ1FKjQv", "7ZLpJgvnAb"}, Ready: 1, IsMember: true, TotalSteps: 100, Limit: 60}})
	arrives.See(event.Event{Time: begun, Body: event.Transfer{What: event.TransferModel, Step: 25, Bytes: 100 << 20, Total: 400 << 20}})
	downloads := &Client{}
	downloads.seen.runID, downloads.seen.id = "quickstart", "83JJ1FKjQv"
	downloads.See(event.Event{Time: begun, Body: event.State{RunState: "Warmup", Epoch: 0, Members: []string{"83JJ1FKjQv", "7ZLpJgvnAb"}, Ready: 1, IsMember: true, TotalSteps: 100, Limit: 60}})
	downloads.See(event.Event{Time: begun, Body: event.Transfer{What: event.TransferDownload, Bytes: 3 << 30, Total: 4 << 30}})
	hosts := host(t)
	hosts.see("quickstart", event.Event{Time: at, Body: trials})
	moving := host(t)
	moving.move(map[string][]Moving{"quickstart": {
		{"2VnaQYyoCd", event.Transfer{What: event.TransferModel, Step: 39, Bytes: 100 << 20, Total: 400 << 20}},
		{"4kLmNoPqRs\x1b[2J", event.Transfer{What: event.TransferUpload, Step: 25, Bytes: 300 << 20, Total: 400 << 20}},
		{"5\x1b[2J", event.Transfer{What: event.TransferResults, Step: 25, Bytes: 1, Total: 2}},
		{"6", event.Transfer{What: event.TransferDownload, Step: 25, Bytes: 1, Total: 2}},
	}})
	for _, e := range ejected {
		out.See(event.Event{Time: begun, Body: e})
		hosts.see("quickstart", event.Event{Time: at, Body: e})
	}
	for name, screen := range map[string]string{
		"client-audits-80x24": busy.screen(80, 24, at), "client-audits-60x14": busy.screen(60, 14, at),
		"client-ejected-80x24": out.screen(80, 24, at), "client-arrives-80x24": arrives.screen(80, 24, at),
		"client-downloads-80x24": downloads.screen(80, 24, at),
		"server-moves-80x24":     serverModel{server: moving, frame: frame{width: 80, height: 24, at: at}}.render(),
		"server-trials-80x24":    serverModel{server: hosts, frame: frame{width: 80, height: 24, at: at}}.render(),
	} {
		golden.Compare(t, name+".txt", ansi.Strip(screen)+"\n")
	}
	for source, c := range map[string]*Client{"peers": arrives, "archive": downloads} {
		c.See(event.Event{Time: at, Body: event.Ready{Step: 25, Source: source, Bytes: 400 << 20, Seconds: 9}})
		if c.seen.arriving.Total != 0 {
			t.Errorf("the bar remains after the model has arrived, from %s", source)
		}
	}
}

// TestCourtScreensFit checks that no screen is larger than its terminal, whatever the log contains
// about trials.
func TestCourtScreensFit(t *testing.T) {
	c, s := member(), host(t)
	rapid.Check(t, func(t *rapid.T) {
		var now event.Trials
		for range rapid.IntRange(0, 8).Draw(t, "trials") {
			now.Open = append(now.Open, event.OpenTrial{
				Accused: rapid.SampledFrom([]string{"83JJ1FKjQv", "b", ""}).Draw(t, "accused"), Accuser: "7ZLpJgvnAb",
				Fault: rapid.String().Draw(t, "fault"), Jury: rapid.IntRange(0, 32).Draw(t, "jury"), Juror: true,
			})
		}
		out := event.Ejected{Client: "b", Until: 1 << 31, Reason: rapid.String().Draw(t, "reason")}
		transfer := event.Transfer{What: event.TransferModel, Bytes: rapid.Uint64().Draw(t, "bytes"), Total: rapid.Uint64().Draw(t, "total")}
		for _, body := range []event.Body{now, out, transfer} {
			c.See(event.Event{Time: begun, Body: body})
			s.see("quickstart", event.Event{Time: begun, Body: body})
		}
		width, height := rapid.IntRange(1, 200).Draw(t, "width"), rapid.IntRange(1, 60).Draw(t, "height")
		for _, screen := range []string{c.screen(width, height, begun), serverModel{server: s, frame: frame{width: width, height: height, at: begun}}.render()} {
			lines := strings.Split(screen, "\n")
			if len(lines) > max(height, minHeight) {
				t.Fatalf("%d lines on %d", len(lines), height)
			}
			for _, line := range lines {
				if w := lipgloss.Width(line); w > max(width, minWidth) || strings.ContainsAny(ansi.Strip(line), "\x1b\r\t\a") {
					t.Fatalf("%d columns on %d: %q", w, width, line)
				}
			}
		}
	})
}
