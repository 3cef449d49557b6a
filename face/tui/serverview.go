package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/record/event"
)

// render draws everything into a screen of the model's size.
func (m serverModel) render() string {
	width, height := max(m.width, leastWidth), max(m.height, leastHeight)
	m.server.mu.Lock()
	title := m.server.title
	m.server.mu.Unlock()
	runs := m.server.now()
	if m.inviting && m.chosen < len(runs) {
		return screen(append([]string{"others join run " + printable(runs[m.chosen].runID) + " with:   (any key: back)", ""}, wrapped(m.server.command(runs[m.chosen].runID), width)...), width, height)
	}
	lines := []string{strong.Render("psyche server") + "  " + printable(title), m.asked(runs)}
	lines = append(lines, m.list(runs, width, height)...)
	if m.chosen < len(runs) && height >= roomyHeight && !runs[m.chosen].over() {
		if command := m.server.command(runs[m.chosen].runID); command != "" {
			lines = append(append(lines, rule("others join with", width)), wrapped(command, width)...)
		}
	}
	if m.chosen < len(runs) {
		lines = append(lines, runs[m.chosen].details(width, m.at)...)
	}
	if room := height - len(lines) - 1; room > 0 {
		lines = append(lines, rule("log", width))
		log := m.server.Lines()
		slices.Reverse(log)
		for _, line := range log[:min(len(log), room)] {
			lines = append(lines, faint.Render(line.At.Format(time.TimeOnly)+" "+line.Level.String())+" "+printable(line.Text))
		}
	}
	return screen(lines, width, height)
}

// asked shows the open question, or the available keys.
func (m serverModel) asked(runs []hosted) string {
	if m.asking != "" {
		i := slices.IndexFunc(runs, func(h hosted) bool { return h.runID == m.asking })
		action := "pause"
		if i >= 0 && runs[i].state.RunState == "Paused" {
			action = "resume"
		}
		return bad.Render(fmt.Sprintf("y or n: %s run %s, signed with the host's key?", action, printable(m.asking)))
	}
	if m.answer != "" {
		return printable(m.answer)
	}
	if m.server.options.Pause == nil {
		return faint.Render("up, down: choose a run   l: invite link   ctrl+c: end")
	}
	return faint.Render("up, down: choose a run   p: pause or continue it   l: invite link   ctrl+c: end")
}

// wrapped breaks a text into lines of the screen's width.
func wrapped(text string, width int) []string {
	return strings.Split(ansi.Hardwrap(printable(text), width, true), "\n")
}

// list has a line for each run, and uses at most half of the screen.
func (m serverModel) list(runs []hosted, width, height int) []string {
	title := "1 run"
	if len(runs) != 1 {
		title = fmt.Sprintf("%d runs", len(runs))
	}
	lines := []string{rule(title, width)}
	most := max(1, height/2-len(lines)-2)
	first := max(0, min(m.chosen-most/2, len(runs)-most))
	for i := first; i < min(len(runs), first+most); i++ {
		h := runs[i]
		mark := "  "
		if i == m.chosen {
			mark = "> "
		}
		lines = append(lines, mark+fmt.Sprintf("%-16.16s  %s %5d of %-5d %s",
			printable(h.runID), good.Render(fmt.Sprintf("%-22.22s", phaseName(h.state.RunState))), h.state.ShownStep(), h.state.TotalSteps, joined(h.state)))
	}
	return lines
}

// details show one run.
func (h hosted) details(width int, now time.Time) []string {
	lines := []string{rule("run "+printable(h.runID), width), fmt.Sprintf("epoch %d  %s", h.state.Epoch, phase(h.state, h.since, now))}
	switch h.state.RunState {
	case "Warmup":
		lines = append(lines, quorum(h.state, 20))
	case "RoundTrain", "RoundWitness":
		lines = append(lines, fmt.Sprintf("%s  batch of %d", quorum(h.state, 20), h.state.BatchSize))
	}
	if text := h.state.Claimed.String(); text != "" {
		lines = append(lines, printable(text))
	}
	journal := fmt.Sprintf("log %s, %s a minute", diskspace.Format(h.journal), diskspace.Format(h.grows(now)))
	if h.commit > 0 {
		journal += fmt.Sprintf("  made durable in %.1f ms", 1000*h.commit)
	}
	if h.state.Digest != "" {
		journal += "  checkpoint " + h.state.Digest[:min(8, len(h.state.Digest))]
	}
	lines = append(lines, journal)
	lines = append(lines, h.members(width)...)
	lines = append(lines, h.moves()...)
	return append(lines, h.court.lines(short)...)
}

// membersLines is the maximum number of lines for the members.
const membersLines = 4

// members shows the keys of a run's members, with their names if all fit.
func (h hosted) members(width int) []string {
	if len(h.state.Members) == 0 {
		return nil
	}
	list := func(named func(id string) string) []string {
		text := "members"
		for _, id := range h.state.Members {
			text += " " + short(id)
			if slices.Contains(h.state.Elected, id) {
				text += "*"
			}
			text += named(id)
		}
		return strings.Split(ansi.Wordwrap(text+"   * witness", width, ""), "\n")
	}
	if lines := list(h.names.of); len(lines) <= membersLines {
		return lines
	}
	lines := list(func(string) string { return "" })
	return lines[:min(len(lines), membersLines)]
}

// moves shows transfers of models and checkpoints, as reported by members.
func (h hosted) moves() (lines []string) {
	const shown = 3
	for _, m := range h.moving[:min(len(h.moving), shown)] {
		lines = append(lines, fmt.Sprintf("%s %s, step %d: %s", printable(short(m.Member)), does(m.Transfer), m.Step, transferred(m.Transfer)))
	}
	if more := len(h.moving) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more that get a model or upload one", more))
	}
	return lines
}

// does describes a transfer.
func does(t event.Transfer) string {
	switch t.What {
	case event.TransferUpload:
		return "uploads"
	case event.TransferDownload:
		return "downloads"
	case event.TransferResults:
		return "gets results"
	}
	return "gets the model"
}
