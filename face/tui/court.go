package tui

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/record/event"
)

// Limits for the display of trials and ejections.
const (
	trialsShown    = 3
	ejectionsShown = 3
)

// court is the known trials and ejections of a run.
type court struct {
	open    []event.OpenTrial
	ejected []event.Ejected // newest last
}

// see processes an event.
func (c *court) see(body event.Body) {
	switch body := body.(type) {
	case event.Trials:
		c.open = body.Open
	case event.Ejected:
		c.ejected = slices.Concat(c.ejected, []event.Ejected{body}) // copied, because readers may hold the old slice
		c.ejected = c.ejected[max(0, len(c.ejected)-ejectionsShown):]
	}
}

// ejection returns the newest ejection of a client; zero if it is not among the newest ejections.
func (c court) ejection(id string) event.Ejected {
	for _, e := range slices.Backward(c.ejected) {
		if e.Client == id {
			return e
		}
	}
	return event.Ejected{}
}

// tries reports whether a client is on trial.
func (c court) tries(id string) bool {
	return slices.ContainsFunc(c.open, func(t event.OpenTrial) bool { return t.Accused == id })
}

// section shows open trials and the newest ejections under a title.
func (c court) section(known func(id string) string, width int) []string {
	return titled("audits and trials", width, c.lines(known))
}

// titled puts a title above lines, if there are any.
func titled(title string, width int, lines []string) []string {
	if len(lines) == 0 {
		return nil
	}
	return append([]string{rule(title, width)}, lines...)
}

// lines show open trials and the newest ejections. known converts an id to its displayed form.
func (c court) lines(known func(id string) string) (lines []string) {
	name := func(id string) string { return printable(known(id)) }
	for _, t := range c.open[:min(len(c.open), trialsShown)] {
		lines = append(lines, trialLine(t, name))
	}
	if more := len(c.open) - trialsShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	for _, e := range slices.Backward(c.ejected) {
		lines = append(lines, fmt.Sprintf("ejected %s until epoch %d: %s", name(e.Client), e.Until, printable(e.Reason)))
	}
	return lines
}

// trialLine shows one trial. The least important part is last, because a narrow screen cuts the
// line.
func trialLine(t event.OpenTrial, name func(id string) string) string {
	return fmt.Sprintf("trial of %s by %s: %s; %s, step %d (until %d)", name(t.Accused), name(t.Accuser), votesOf(t), printable(t.Fault), t.Step, t.Until)
}

func votesOf(t event.OpenTrial) string {
	if t.Jury == 0 {
		return "no jury yet"
	}
	return fmt.Sprintf("%d guilty, %d innocent of %d", t.Guilty, t.Innocent, t.Jury)
}

// audited lists the numbers of audits by result.
func audited(outcomes map[string]int) string {
	var counts []string
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		counts = append(counts, fmt.Sprintf("%d %s", outcomes[outcome], printable(outcome)))
	}
	return strings.Join(counts, ", ")
}

// judging shows this client's part in trials, and its audits.
func (s seen) judging(width int) []string {
	var lines []string
	for _, t := range s.court.open {
		about := fmt.Sprintf("(%s, step %d)", printable(t.Fault), t.Step)
		switch {
		case t.Accused == s.id:
			lines = append(lines, bad.Render("on trial by "+short(t.Accuser)+" "+about)+": "+votesOf(t))
		case t.Accuser == s.id:
			lines = append(lines, fmt.Sprintf("accused %s %s: %s", short(t.Accused), about, votesOf(t)))
		case t.Juror:
			did := "to vote"
			if t.Voted {
				did = "has voted"
			}
			lines = append(lines, fmt.Sprintf("juror on %s %s, %s: %s", short(t.Accused), about, did, votesOf(t)))
		}
	}
	if len(s.audits) > 0 {
		lines = append(lines, fmt.Sprintf("own audits: %s; newest of %s, step %d", audited(s.audits), short(s.audit.Trainer), s.audit.Step))
	}
	return titled("audits and trials", width, lines)
}
