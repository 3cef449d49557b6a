package tui

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/console"
	"github.com/psyche-go/psyche/record/event"
)

// run is the displayed data of a run, computed from events. All displays draw its head.
type run struct {
	runID   string
	name    string // display name; empty: none
	state   event.State
	began   time.Time     // first event; zero: none yet
	since   time.Time     // start of the phase
	left    time.Duration // estimate; 0: unknown
	pace    console.Pace
	members []string       // of the newest epoch
	claimed []point        // median loss that witnesses claim, by round
	claims  *event.Claimed // the newest; nil: none yet
	court   court
	names   names
	story   []Line // events in sentences, newest last
}

// see processes an event of the run.
func (r *run) see(e event.Event) {
	if r.began.IsZero() {
		r.began = e.Time
	}
	switch body := e.Body.(type) {
	case event.State:
		r.move(e.Time, body)
	case event.Trials:
		r.court.see(body)
	case event.Trial:
		r.tell(e.Time, "trial of "+r.label(body.Accused)+", accused by "+r.label(body.Accuser)+" ("+body.Fault+"): "+body.What)
	case event.Ejected:
		r.court.see(body)
		r.tell(e.Time, fmt.Sprintf("%s is ejected until epoch %d: %s", r.label(body.Client), body.Until, body.Reason))
	case event.Named:
		r.names = r.names.with(body)
	}
}

// move processes a new state.
func (r *run) move(at time.Time, next event.State) {
	if next.RunState != r.state.RunState || next.Step != r.state.Step && next.RunState != coordinator.WaitingForMembers.String() {
		r.since = at
	}
	if r.state.RunState != "" {
		for _, text := range r.changes(next) {
			r.tell(at, text)
		}
	}
	if inEpoch(next) {
		r.members = next.Members
	}
	next.HeldOut = cmp.Or(next.HeldOut, r.state.HeldOut)
	r.state = next
	r.pace.See(at, next)
	r.left = 0
	if total := next.TotalSteps; next.Step > 0 && next.Step <= total && !isOver(next) {
		r.left, _, _ = r.pace.Left(total - next.Step + 1)
	}
	c := next.Claimed
	if c == nil || c.Loss.Count == 0 {
		return // an epoch begins without claims
	}
	r.claims = c
	if len(r.claimed) == 0 || r.claimed[len(r.claimed)-1].step < c.Step {
		r.claimed = append(r.claimed, point{c.Step, c.Loss.Median})
		r.claimed = r.claimed[max(0, len(r.claimed)-lossesKept):]
	}
}

// tell adds a sentence about an event.
func (r *run) tell(at time.Time, text string) {
	r.story = append(r.story, Line{At: at, Text: text})
	r.story = r.story[max(0, len(r.story)-linesKept):]
}

// copied returns a copy that does not change while the run receives events.
func (r *run) copied() run {
	c := *r
	c.claimed, c.story = slices.Clone(r.claimed), slices.Clone(r.story)
	return c
}

// label returns a shortened key, followed by the name that its owner claims.
func (r *run) label(id string) string { return short(id) + r.names.of(id) }

// listed returns the members of the epoch, or of the last epoch in the short time until the next one begins.
func (r *run) listed() []string {
	if r.state.RunState == waiting && missing(r.state) == 0 {
		return r.members
	}
	return r.state.Members
}

// row describes a member in a table.
func (r *run) row(id string) row {
	return row{name: printable(short(id)), claimed: r.names.of(id), witness: slices.Contains(r.state.Elected, id), role: roleOf(r.state, r.court, id)}
}

// shown returns the display name of a run with its identifier, or only the identifier.
func (r *run) shown() string {
	if r.name == "" {
		return printable(r.runID)
	}
	return printable(r.name) + " (" + printable(r.runID) + ")"
}

// head returns the lines at the top of every display: program and run, the state in words, and the
// progress. right is at the end of the first line, and about at the end of the second line.
func (r *run) head(program string, right []string, about string, width int, now time.Time) []string {
	return []string{r.titled(program, right, width), r.phase(now) + about, r.progress(width, now)}
}

// titled returns the first line. A narrow screen omits the first parts of its right end.
func (r *run) titled(program string, right []string, width int) string {
	left := strong.Render(program)
	if shown := r.shown(); shown != "" {
		left += "  " + shown
	}
	for ; len(right) > 0; right = right[1:] {
		if end := strings.Join(right, "  "); lipgloss.Width(left)+2+lipgloss.Width(end) <= width {
			return apart(left, end, width)
		}
	}
	return left
}

// phase describes the state in words, with the duration of its phase.
func (r *run) phase(now time.Time) string {
	text := good.Render(words(r.state))
	if r.since.IsZero() || isOver(r.state) {
		return text
	}
	text += "  " + clock(now.Sub(r.since))
	if r.state.Limit > 0 {
		text += " of at most " + clock(time.Duration(r.state.Limit*float64(time.Second)))
	}
	if r.state.Pausing {
		text += ", pauses at the end of the epoch"
	}
	return text
}

// progress draws the completed part of the run, with the elapsed time and the expected end. A narrow
// screen omits the least important parts.
func (r *run) progress(width int, now time.Time) string {
	done := max(r.state.Step, 1) - 1 // the step of a state is the next one
	if isOver(r.state) {
		done = r.state.TotalSteps
	}
	whole := max(r.state.TotalSteps, 1)
	percent := fmt.Sprintf(" %d %%", min(100*uint64(done)/uint64(whole), 100))
	rounds, elapsed, left, end := fmt.Sprintf("  %d of %d rounds", done, r.state.TotalSteps), "", "", ""
	if !r.began.IsZero() {
		until := now
		if isOver(r.state) {
			until = r.since
		}
		elapsed = "  " + clock(until.Sub(r.began)) + " elapsed"
	}
	if r.left > 0 {
		left, end = "  "+meter.Span(r.left)+" left", ", ends about "+dated(now.Add(r.left), now)
	}
	room := width - len(percent) - minBar
	for _, part := range []*string{&left, &elapsed, &rounds, &end} { // the most important one first
		if room -= len(*part); room < 0 {
			*part = ""
		}
	}
	text := percent + rounds + elapsed + left + end
	return bar(int(min(done, whole)), int(whole), min(max(width-len(text), minBar), maxBar)) + text
}

// Widths of the progress bar.
const (
	minBar = 5
	maxBar = 20
)

// dated formats a time for people, without the date if it is on the day of now.
func dated(at, now time.Time) string {
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04")
	}
	return at.Format("2 Jan 15:04")
}

// loss describes the claimed loss: a small curve if the screen has no chart, and the newest claims.
func (r *run) loss(charted bool) string {
	text := printable(r.claims.String())
	if curve := spark(r.claimed, sparkWidth); curve != "" && !charted {
		text = curve + " " + text
	}
	if held := r.state.HeldOut.String(); held != "" && text != "" {
		text += "; " + printable(strings.TrimPrefix(held, "claimed "))
	}
	return text
}

// sparkWidth is the width of a small curve.
const sparkWidth = 8

// events returns a section with the newest sentences and warnings, newest first. It breaks long lines, and
// cuts lines that would hide the other events.
func events(width int, lines ...[]Line) []string {
	const margin, most = "         ", 8 // below the time; lines of one event
	all := slices.Concat(lines...)
	slices.SortStableFunc(all, func(a, b Line) int { return a.At.Compare(b.At) })
	var broken []string
	for _, line := range lastLines(all, eventsShown) {
		parts := strings.Split(ansi.Wrap(line, width-len(margin), ""), "\n")
		if len(parts) > most {
			parts = append(parts[:most-1], "…")
		}
		for i, part := range parts {
			if i > 0 {
				part = margin + part
			}
			broken = append(broken, part)
		}
	}
	return titled("events", width, broken)
}

// lastLines draws the newest lines, newest first.
func lastLines(all []Line, limit int) (drawn []string) {
	for _, line := range slices.Backward(all[max(0, len(all)-limit):]) {
		level := ""
		if line.Level > slog.LevelInfo {
			level = " " + line.Level.String()
		}
		drawn = append(drawn, faint.Render(line.At.Format(time.TimeOnly)+level)+" "+printable(line.Text))
	}
	return drawn
}

// wrapped breaks a text into lines of the screen's width.
func wrapped(text string, width int) []string {
	return strings.Split(ansi.Hardwrap(printable(text), width, true), "\n")
}

// apart puts two texts at the ends of a line.
func apart(left, right string, width int) string {
	return left + strings.Repeat(" ", max(2, width-lipgloss.Width(left)-lipgloss.Width(right))) + right
}
