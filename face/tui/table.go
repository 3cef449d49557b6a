package tui

import (
	"fmt"
	"math"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/record/event"
)

// column is a column of a table after name and role. A narrow screen omits the last columns.
type column struct {
	title string
	width int
}

// row is a member or a client.
type row struct {
	name    string // without control characters
	claimed string // name that the member claims; a narrow screen omits it
	witness bool
	role    string
	out     bool // it is out of the run
	cells   []string
	moving  event.Transfer // during a transfer, a bar replaces the cells before the last column
}

// table lists the members of a run, or the clients of a network.
type table struct {
	title   string // of the names
	columns []column
	rows    []row
}

// roleTitle is the title of the roles.
const roleTitle = "role, * witness"

// minNamed is the minimum width of a table with claimed names.
const minNamed = 60

// lines draws as many rows as fit.
func (t table) lines(width, room int) []string {
	if len(t.rows) == 0 || room < 2 {
		return nil
	}
	names, roles := lipgloss.Width(t.title)+1, len(roleTitle)
	for i, r := range t.rows {
		if r.witness {
			r.name += "*"
		}
		if width >= minNamed {
			r.name += r.claimed
		}
		names, roles = max(names, lipgloss.Width(r.name)), max(roles, len(r.role))
		t.rows[i] = r
	}
	left := width - names - 2 - roles
	gap, shown := 1, 0
	for need := 0; shown < len(t.columns) && need+gap+t.columns[shown].width <= left; shown++ {
		need += gap + t.columns[shown].width
	}
	if shown == len(t.columns) { // a wide screen has room for gaps
		for gap < 4 && left >= t.width(gap+1) {
			gap++
		}
	}
	title := padded(t.title, names) + "  " + padded(roleTitle, roles)
	for _, c := range t.columns[:shown] {
		title += fmt.Sprintf("%*s", gap+c.width, c.title)
	}
	lines := []string{faint.Render(title)}
	for i, r := range t.rows {
		if len(lines) == room-1 && i < len(t.rows)-1 {
			return append(lines, fmt.Sprintf("and %d more", len(t.rows)-i))
		}
		role := padded(r.role, roles)
		if r.out {
			role = bad.Render(role)
		}
		lines = append(lines, padded(r.name, names)+"  "+role+t.cells(r, left, gap, shown))
	}
	return lines
}

// padded extends a text to a width. Unlike fmt, it counts columns.
func padded(text string, width int) string {
	return fmt.Sprintf("%s%*s", text, max(0, width-lipgloss.Width(text)), "")
}

// width returns the width of all columns, with a gap before each.
func (t table) width(gap int) (all int) {
	for _, c := range t.columns {
		all += gap + c.width
	}
	return all
}

// cells draws the first columns of a row. During a transfer, a bar replaces the cells before the last column of the table.
func (t table) cells(r row, left, gap, shown int) string {
	text, last := "", shown-1
	for i := range shown {
		width := gap + t.columns[i].width
		text += fmt.Sprintf("%*.*s", width, width, r.cells[i])
		if i == last-1 && shown == len(t.columns) {
			left = lipgloss.Width(text)
		}
	}
	if r.moving.Total == 0 {
		return text
	}
	bars := movingBar(r.moving, left-2)
	if last >= 0 && shown == len(t.columns) {
		return "  " + bars + fmt.Sprintf("%*s", gap+t.columns[last].width, r.cells[last])
	}
	return "  " + bars
}

// movingBar draws a transfer with exactly the given width, so that the bars of all rows align.
func movingBar(t event.Transfer, width int) string {
	const percent, bytes, minimum = 6, 24, 5 // width of " 100 %"; width of "  999.9 MiB of 999.9 MiB"; minimum width of a bar
	if width < percent {
		return ""
	}
	text := fmt.Sprintf(" %3.0f %%", math.Floor(100*float64(t.Bytes)/float64(max(t.Total, 1))))
	each := width - percent
	if each >= bytes+minimum {
		text += fmt.Sprintf("  %s of %s", diskspace.Format(t.Bytes), diskspace.Format(t.Total))
		each -= bytes
	}
	drawn := filled(t, min(max(each, 3), 20)) + text
	return padded(ansi.Truncate(drawn, width, "…"), width)
}
