package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/record/event"
)

// eventsShown is the maximum number of events on a screen.
const eventsShown = 5

// layout arranges the data of a client.
func (s seen) layout(width, height int, now time.Time) layout {
	charted := height >= roomyHeight && len(s.curve()) > 1
	l := layout{
		top:      append(s.head("psyche-client", []string{short(s.id), fmt.Sprintf("epoch %d", s.state.Epoch)}, s.about(), width, now), s.round()...),
		sections: [][]string{s.holding(width), events(width, s.story, s.warnings), s.judging(width)},
	}
	if s.ended != "" {
		style := good
		if s.failed {
			style = bad
		}
		l.top[1] = style.Render(printable(s.ended))
	}
	if text := s.loss(charted); text != "" {
		l.top = append(l.top, text)
	}
	l.losses, l.table = s.curve(), s.memberTable()
	return l
}

// curve returns the loss of the run as witnesses claim it, or the loss of the client's own results.
func (s seen) curve() []point {
	if len(s.claimed) > 1 {
		return s.claimed
	}
	return s.losses
}

// about returns this client's role in the run, for the end of a line.
func (s seen) about() string {
	if role := s.role(); role != "" {
		return "  " + role
	}
	return ""
}

// role describes this client's role in the run.
func (s seen) role() string {
	out := s.court.ejection(s.id)
	switch {
	case s.state.RunState == "":
		return ""
	case !s.state.IsMember && out.Until > s.state.Epoch:
		return bad.Render(fmt.Sprintf("ejected until epoch %d", out.Until)) + ": " + printable(out.Reason)
	case isOver(s.state) || s.state.RunState == waiting:
		return ""
	case !s.state.IsMember:
		return "waiting for the next epoch"
	case s.state.Probation > 0:
		return event.OnProbation(s.state.Probation, "your")
	case s.state.RunState != roundTrain && s.state.RunState != roundWitness || !slices.Contains(s.state.Elected, s.id):
		return "member"
	case s.witness.Step == s.state.Step && s.witness.Step > 0:
		return fmt.Sprintf("witness: reported %d of %d results", s.witness.Held, s.witness.Batches)
	}
	return "witness: has not reported"
}

// round shows the progress of rounds.
func (s seen) round() []string {
	members := joined(s.state)
	if text := quorum(s.state, 10); text != "" {
		members += ", " + text
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
	lines := []string{members, own, speed}
	counted := ""
	if s.held.Batches > 0 {
		counted = fmt.Sprintf("results of step %d: %d of %d here", s.held.Step, s.held.Held, s.held.Batches)
	}
	if s.applied.Step > 0 {
		counted += fmt.Sprintf("  applied step %d: %d counted, %d lost so far", s.applied.Step, s.applied.Counted, s.lost)
	}
	if counted != "" {
		lines = append(lines, strings.TrimSpace(counted))
	}
	return lines
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
	case s.ready.Source == "held":
		lines = append(lines, fmt.Sprintf("model of step %d, kept from the epoch before", s.ready.Step))
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
	return titled("model", width, lines)
}

// memberTable lists the members of the run: this client with its whole traffic, then peers by falling
// traffic.
func (s seen) memberTable() table {
	t := table{title: "member", columns: []column{{"in", 11}, {"out", 11}, {"received", 9}, {"sent", 9}, {"way", 7}}}
	peers := slices.Clone(s.peers)
	for _, id := range s.listed() {
		if !slices.ContainsFunc(peers, func(p rated) bool { return p.ID == id }) {
			peers = append(peers, rated{Peer: Peer{ID: id}, absent: true})
		}
	}
	slices.SortStableFunc(peers, s.order)
	var all rated
	for _, p := range s.peers {
		all.in, all.out, all.Received, all.Sent = all.in+p.in, all.out+p.out, all.Received+p.Received, all.Sent+p.Sent
	}
	for _, p := range peers {
		r := s.row(p.ID)
		r.cells = traffic(p, "direct")
		switch {
		case p.ID == s.id:
			r.claimed, r.cells = r.claimed+" (you)", traffic(all, "all")
		case p.absent:
			r.cells = []string{"-", "-", "-", "-", "-"}
		case p.Relayed:
			r.cells = traffic(p, "relayed")
		}
		t.rows = append(t.rows, r)
	}
	return t
}

// traffic returns the cells of a row.
func traffic(p rated, way string) []string {
	return []string{diskspace.Format(p.in) + "/s", diskspace.Format(p.out) + "/s", diskspace.Format(p.Received), diskspace.Format(p.Sent), way}
}

// order sorts this client first, then peers by falling traffic.
func (s seen) order(a, b rated) int {
	first := func(p rated) int {
		switch {
		case p.ID == s.id:
			return 0
		case p.absent:
			return 2
		}
		return 1
	}
	if x, y := first(a), first(b); x != y {
		return x - y
	}
	switch x, y := a.in+a.out, b.in+b.out; {
	case x > y:
		return -1
	case x < y:
		return 1
	}
	return strings.Compare(a.ID, b.ID)
}

// clock formats a duration for people.
func clock(d time.Duration) string {
	d = max(0, d)
	if d < time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return d.Truncate(time.Second).String()
}

// printable replaces characters in untrusted text that could move the cursor or colour the screen. Its
// result is one line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case r == '\n' || r == '\t':
			return ' '
		}
		return '?'
	}, text)
}

// printed returns copies of lines that are safe to write to a terminal.
func printed(lines []Line) []Line {
	safe := slices.Clone(lines)
	for i := range safe {
		safe[i].Text = printable(safe[i].Text)
	}
	return safe
}
