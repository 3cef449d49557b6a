package tui

import (
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/record/event"
)

// Limits of a server's screen.
const (
	logShown   = 8  // lines of the log
	tallHeight = 36 // from this height on, the command that joins the run is always shown
)

// render draws everything into a screen of the model's size.
func (m serverModel) render() string {
	runs := m.server.now()
	keys := m.manual(runs)
	if page, covers := m.cover(keys); covers {
		return page
	}
	width, height := m.size()
	m.server.mu.Lock()
	title := m.server.title
	m.server.mu.Unlock()
	l := layout{keys: m.foot(keys, &m.server.terminal)}
	urgent := m.urgent(&m.server.terminal)
	if question := m.question(runs); question != "" && !urgent {
		l.keys, urgent = question, true
	}
	log := titled("log", width, lastLines(m.server.Lines(), logShown))
	switch {
	case m.chosen < len(runs):
		h := runs[m.chosen]
		l.top = h.head("psyche server", []string{printable(title), fmt.Sprintf("epoch %d", h.state.Epoch)}, "", width, m.at)
		l.top = append(l.top, h.details(width, height, m.at)...)
		l.table, l.losses = h.memberTable(), h.claimed
		l.sections = [][]string{log, events(width, h.story), h.court.section(h.label, width)}
	default:
		l.top, l.sections = []string{strong.Render("psyche server") + "  " + printable(title), "no runs yet"}, [][]string{log}
	}
	if height < roomyHeight && urgent {
		l.top = slices.Insert(l.top, 1, l.keys) // a small screen has no line of keys
	}
	if len(runs) > 1 {
		l.top = append(m.list(runs, width, height), l.top...)
	}
	return l.draw(width, height)
}

// question returns the open question, or the result of the last key; "" if there is neither.
func (m serverModel) question(runs []hosted) string {
	if m.asking == "" {
		return printable(m.answer)
	}
	i := slices.IndexFunc(runs, func(h hosted) bool { return h.runID == m.asking })
	action := "pause"
	if i >= 0 && runs[i].state.RunState == paused {
		action = "resume"
	}
	return bad.Render(fmt.Sprintf("y or n: %s run %s, signed with the host's key?", action, printable(m.asking)))
}

// list has a line for each run, and uses at most a third of the screen.
func (m serverModel) list(runs []hosted, width, height int) []string {
	lines := []string{rule(fmt.Sprintf("%d runs", len(runs)), width)}
	limit := max(1, height/3-len(lines))
	first := max(0, min(m.chosen-limit/2, len(runs)-limit))
	for i := first; i < min(len(runs), first+limit); i++ {
		h := runs[i]
		mark := "  "
		if i == m.chosen {
			mark = "> "
		}
		lines = append(lines, mark+fmt.Sprintf("%-16.16s  %s %5d of %-5d %s",
			printable(h.runID), good.Render(fmt.Sprintf("%-13s", brief(h.state))), h.state.ShownStep(), h.state.TotalSteps, joined(h.state)))
	}
	return lines
}

// details show the rounds and the log of one run, and the command that joins it, unless the run is over.
func (h hosted) details(width, height int, now time.Time) (lines []string) {
	if text := quorum(h.state, 20); text != "" {
		if h.state.BatchSize > 0 {
			text += fmt.Sprintf("  batch of %d", h.state.BatchSize)
		}
		lines = append(lines, text)
	}
	if text := h.loss(height >= roomyHeight); text != "" {
		lines = append(lines, text)
	}
	journal := fmt.Sprintf("log %s, %s a minute", diskspace.Format(h.journal), diskspace.Format(h.grows(now)))
	if h.commit > 0 {
		journal += fmt.Sprintf("  made durable in %.1f ms", 1000*h.commit)
	}
	if h.state.Digest != "" {
		journal += "  checkpoint " + h.state.Digest[:min(8, len(h.state.Digest))]
	}
	lines = append(lines, journal)
	invites := missing(h.state) > 0 && height >= roomyHeight || height >= tallHeight
	if h.command != "" && invites && !isOver(h.state) {
		lines = append(append(lines, rule("others join with", width)), wrapped(h.command, width)...)
	}
	return lines
}

// memberTable lists the members of the run, members with a reported transfer first.
func (h hosted) memberTable() table {
	t := table{title: "member"}
	moving := func(id string) event.Transfer {
		for _, m := range h.moving {
			if m.Member == id {
				return m.Transfer
			}
		}
		return event.Transfer{}
	}
	ids := slices.Clone(h.listed())
	for _, m := range h.moving {
		if !slices.Contains(ids, m.Member) {
			ids = append(ids, m.Member)
		}
	}
	for _, id := range ids {
		r := h.row(id)
		if r.moving = moving(id); r.moving.Total > 0 {
			r.role = does(r.moving)
		}
		t.rows = append(t.rows, r)
	}
	slices.SortStableFunc(t.rows, func(a, b row) int { return first(a) - first(b) })
	return t
}

// first returns 0 for rows that belong at the top of a table.
func first(r row) int {
	if r.moving.Total > 0 {
		return 0
	}
	return 1
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
