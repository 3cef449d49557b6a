package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

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
	leastWidth  = 40
	leastHeight = 10
	roomyHeight = 18 // from this height on, the chart is always shown
	leastChart  = 5  // lines, including its title
	mostChart   = 12
)

// render draws everything into a screen of the given size.
func (s seen) render(width, height int, now time.Time) string {
	width, height = max(width, leastWidth), max(height, leastHeight)
	lines := append(s.head(width, now), s.round()...)
	if text := s.state.Claimed.String(); text != "" && height >= roomyHeight {
		lines = append(lines, printable(text))
	}
	least := 0
	if len(s.losses) > 1 && height >= roomyHeight {
		least = leastChart
	}
	below, room := fit([][]string{s.holding(width), s.connected(width), s.judging(width), s.warned(width)}, height-len(lines)-least)
	if drawn := chart(s.losses, width, min(room+least-1, mostChart)); len(drawn) > 0 {
		lines = append(append(lines, rule("loss", width)), drawn...)
	}
	for _, section := range below {
		lines = append(lines, section...)
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

// head shows the name and the phase of the run.
func (s seen) head(width int, now time.Time) []string {
	steps := fmt.Sprintf("step %d", s.state.ShownStep())
	if total := s.state.TotalSteps; total > 0 {
		steps += fmt.Sprintf(" of %d", total)
	}
	left := strong.Render("psyche-client") + "  run " + printable(s.runID) + "  " + short(s.id)
	if s.left != "" && s.state.RunState != "Paused" {
		steps += "  " + s.left
	}
	right := steps + fmt.Sprintf("  epoch %d", s.state.Epoch)
	first := apart(left, right, width)
	if s.ended != "" {
		return []string{first, bad.Render(printable(s.ended))}
	}
	return []string{first, phase(s.state, s.since, now) + "  " + s.role()}
}

// role describes this client's role in the run.
func (s seen) role() string {
	out := s.court.ejection(s.id)
	switch {
	case s.state.RunState == "":
		return ""
	case !s.state.IsMember && out.Until > s.state.Epoch:
		return bad.Render(fmt.Sprintf("ejected until epoch %d", out.Until)) + ": " + printable(out.Reason)
	case !s.state.IsMember:
		return "waiting for the next epoch"
	case s.state.Probation > 0:
		return event.OnProbation(s.state.Probation, "your")
	case !slices.Contains(s.state.Elected, s.id):
		return "member"
	case s.witness.Step == s.state.Step && s.witness.Step > 0:
		return fmt.Sprintf("member and witness: reported %d of %d results", s.witness.Held, s.witness.Batches)
	}
	return "member and witness: has not reported"
}

// round shows the progress of rounds.
func (s seen) round() []string {
	members := joined(s.state)
	switch s.state.RunState {
	case "Warmup":
		members += fmt.Sprintf(", %d hold the model", s.state.Ready)
	case "RoundTrain", "RoundWitness":
		members += fmt.Sprintf(", %d of %d witnesses reported %s", s.state.Witnesses, s.state.Quorum, bar(s.state.Witnesses, s.state.Quorum, 10))
	}
	own := "own batch: none yet"
	if s.trained.Step > 0 {
		own = fmt.Sprintf("own batch %d–%d of step %d: loss %.4f, trained in %.2f s", s.trained.Batch[0], max(s.trained.Batch[1], 1)-1, s.trained.Step, float64(s.trained.Loss), s.trained.Seconds)
		if s.sent.Step == s.trained.Step {
			own += ", " + diskspace.Format(s.sent.Bytes) + " sent"
		}
	}
	speed := fmt.Sprintf("%.0f tokens/s  trains %.0f %% of a round  %.0f tokens", s.metrics["train/tokens_per_sec"], 100*s.metrics["train/efficency"], s.metrics["train/total_tokens"]) //nolint:misspell // the figure is called that
	if s.gradient.Step > 0 {
		speed += fmt.Sprintf("  rate %.2g  gradient %.3g", s.gradient.LR, s.gradient.Norm)
	}
	counted := ""
	if s.held.Batches > 0 {
		counted = fmt.Sprintf("results of step %d: %d of %d here", s.held.Step, s.held.Held, s.held.Batches)
	}
	if s.applied.Step > 0 {
		counted += fmt.Sprintf("  applied step %d: %d counted, %d lost so far", s.applied.Step, s.applied.Counted, s.lost)
	}
	return []string{members, own, speed, strings.TrimSpace(counted)}
}

// holding shows the model: its source, checkpoints, uploads and scores.
func (s seen) holding(width int) []string {
	var lines []string
	if s.uploading.Bytes < s.uploading.Total {
		lines = append(lines, fmt.Sprintf("uploading step %d: %s", s.uploading.Step, transferred(s.uploading)))
	}
	switch {
	case s.arriving.Bytes < s.arriving.Total && s.arriving.What == event.TransferDownload:
		lines = append(lines, fmt.Sprintf("downloading step %d: %s", s.arriving.Step, transferred(s.arriving)))
	case s.arriving.Bytes < s.arriving.Total:
		lines = append(lines, fmt.Sprintf("%s for step %d: %s", s.arriving.What, s.arriving.Step, transferred(s.arriving)))
	case s.ready.Source != "":
		lines = append(lines, fmt.Sprintf("model of step %d from %s: %s in %.1f s", s.ready.Step, s.ready.Source, diskspace.Format(s.ready.Bytes), s.ready.Seconds))
	case s.model > 0:
		lines = append(lines, "model: "+diskspace.Format(s.model)+" so far")
	}
	if s.saved.Digest != "" {
		line := fmt.Sprintf("checkpoint of step %d, %.8s", s.saved.Step, s.saved.Digest)
		if s.saved.Dir != "" {
			line += " in " + printable(s.saved.Dir)
		}
		lines = append(lines, line)
	}
	if s.uploaded.Place != "" {
		lines = append(lines, fmt.Sprintf("uploaded step %d to %s", s.uploaded.Step, printable(s.uploaded.Place)))
	}
	for _, task := range slices.Sorted(maps.Keys(s.evaluated)) {
		e := s.evaluated[task]
		text := fmt.Sprintf("%s at step %d:", task, e.Step)
		for _, name := range slices.Sorted(maps.Keys(e.Scores)) {
			text += fmt.Sprintf(" %s %.3f", name, e.Scores[name])
		}
		lines = append(lines, printable(text))
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{rule("model", width)}, lines...)
}

// connected shows peers, those with the most traffic first.
func (s seen) connected(width int) []string {
	if len(s.peers) == 0 {
		return nil
	}
	peers := slices.Clone(s.peers)
	slices.SortStableFunc(peers, func(a, b rated) int { return compareRates(b, a) })
	in, out := 0.0, 0.0
	for _, p := range peers {
		in, out = in+p.in, out+p.out
	}
	lines := []string{rule(fmt.Sprintf("%d peers, in %s/s, out %s/s", len(peers), diskspace.Format(in), diskspace.Format(out)), width)}
	for _, p := range peers[:min(len(peers), 5)] {
		way := "direct"
		if p.Relayed {
			way = "relayed"
		}
		lines = append(lines, fmt.Sprintf("%-8s  in %9s/s  out %9s/s  %9s in, %9s out  %s", short(p.ID), diskspace.Format(p.in), diskspace.Format(p.out), diskspace.Format(p.Received), diskspace.Format(p.Sent), way)+s.names.of(p.ID))
	}
	return lines
}

func compareRates(a, b rated) int {
	switch x, y := a.in+a.out, b.in+b.out; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return strings.Compare(b.ID, a.ID)
}

// warned shows the last warnings, newest first.
func (s seen) warned(width int) []string {
	if len(s.warnings) == 0 {
		return nil
	}
	lines := []string{rule("warnings", width)}
	newest := slices.Clone(s.warnings[max(0, len(s.warnings)-5):])
	slices.Reverse(newest)
	for _, w := range newest {
		lines = append(lines, faint.Render(w.At.Format(time.TimeOnly))+" "+printable(w.Text))
	}
	return lines
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
	return fmt.Sprintf("%s of %s %s", diskspace.Format(t.Bytes), diskspace.Format(t.Total), filled(t, 20))
}

// filled draws a bar for a transfer.
func filled(t event.Transfer, width int) string {
	const parts = 1000 // byte counts may exceed an int
	return bar(int(parts*min(1, float64(t.Bytes)/float64(max(t.Total, 1)))), parts, width)
}

// clock formats a duration for people.
func clock(d time.Duration) string {
	d = max(0, d)
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return d.Truncate(time.Second).String()
}

// printable removes characters from untrusted text that could move the cursor or colour the screen.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
