package tui

import (
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/record/event"
)

// Styles of a display. They add no information, so that a terminal without colour shows everything.
var (
	strong = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
)

// Minimum size of the layout. A smaller terminal shows a part of it.
const (
	minWidth    = 40
	minHeight   = 10
	roomyHeight = 18 // from this height on, the chart and the keys are always shown
	minChart    = 5  // lines, including its title
	maxChart    = 12
	minTable    = 3 // lines of a table, including its title
)

// layout is the content of a screen.
type layout struct {
	top      []string
	table    table
	losses   []point
	sections [][]string // the last one is the most urgent
	keys     string
}

// draw arranges the content on a screen: the top, the table, the chart and the sections.
func (l layout) draw(width, height int) string {
	lines, room := slices.Clone(l.top), height-len(l.top)
	if height >= roomyHeight {
		room-- // for the keys
	}
	chartLines, below := 0, 0
	if height >= roomyHeight {
		if len(l.losses) > 1 {
			chartLines = minChart
		}
		if slices.ContainsFunc(l.sections, func(s []string) bool { return len(s) > 0 }) {
			below = 2 // a title and one line
		}
	}
	rows := l.table.lines(width, min(len(l.table.rows)+1, max(minTable, room-chartLines-below)))
	lines, room = append(lines, rows...), room-len(rows)
	sections, left := fit(slices.Clone(l.sections), room-chartLines)
	if drawn := chart(l.losses, width, min(left+chartLines-1, maxChart)); len(drawn) > 0 {
		lines = append(append(lines, rule("loss", width)), drawn...)
	}
	for _, section := range sections {
		lines = append(lines, section...)
	}
	if height >= roomyHeight {
		lines = lines[:min(len(lines), height-1)]
		for len(lines) < height-1 {
			lines = append(lines, "")
		}
		lines = append(lines, l.keys)
	}
	return screen(lines, width, height)
}

// screen truncates lines to the size of the terminal.
func screen(lines []string, width, height int) string {
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], width, "…")
	}
	return strings.Join(lines[:min(len(lines), height)], "\n")
}

// fit removes lines from sections until they fit, and returns the number of free lines. It first
// shortens each section from the end, then removes whole sections. It removes the last section
// last.
func fit(sections [][]string, room int) (kept [][]string, left int) {
	for _, section := range sections {
		room -= len(section)
	}
	for i, section := range sections {
		cut := min(max(0, -room), max(0, len(section)-2))
		if cut > 0 {
			section = section[:len(section)-cut]
		}
		sections[i], room = section, room+cut
	}
	for i, section := range sections {
		if room < 0 {
			sections[i], room = nil, room+len(section)
		}
	}
	return sections, room
}

// rule returns the title of a section.
func rule(title string, width int) string {
	return faint.Render("── "+title+" ") + faint.Render(strings.Repeat("─", max(0, width-4-lipgloss.Width(title))))
}

// bar draws a progress bar.
func bar(part, whole, width int) string {
	full := 0
	if whole > 0 {
		full = min(width, width*part/whole)
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// transferred draws the progress of a transfer.
func transferred(t event.Transfer) string {
	return diskspace.Format(t.Bytes) + " of " + diskspace.Format(t.Total) + " " + filled(t, 20)
}

// filled draws a bar for a transfer.
func filled(t event.Transfer, width int) string {
	const parts = 1000 // byte counts may exceed an int
	return bar(int(parts*min(1, float64(t.Bytes)/float64(max(t.Total, 1)))), parts, width)
}
