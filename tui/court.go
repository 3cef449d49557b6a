package tui

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/event"
)

// Bounds of what is shown of trials and ejections at a time.
const (
	trialsShown    = 3
	ejectionsShown = 3
)

// court is what is known of a run's trials and ejections.
type court struct {
	open    []event.OpenTrial
	ejected []event.Ejected // newest last
}

// see takes an event.
func (c *court) see(body event.Body) {
	switch body := body.(type) {
	case event.Trials:
		c.open = body.Open
	case event.Ejected:
		c.ejected = slices.Concat(c.ejected, []event.Ejected{body}) // others may have the old one
		c.ejected = c.ejected[max(0, len(c.ejected)-ejectionsShown):]
	}
}

// ejection returns the newest ejection of a client, zero if it is not among the newest.
func (c court) ejection(id string) event.Ejected {
	for _, e := range slices.Backward(c.ejected) {
		if e.Client == id {
			return e
		}
	}
	return event.Ejected{}
}

// lines are about open trials and the newest ejections. Known turns an id into what is shown of it.
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

// trialLine is about one trial; what matters least comes last, where a narrow screen cuts.
func trialLine(t event.OpenTrial, name func(id string) string) string {
	opened := ""
	if t.Opened {
		opened = ", opened"
	}
	return fmt.Sprintf("trial of %s by %s: %s; %s%s", name(t.Accused), name(t.Accuser), votesOf(t), printable(t.Fault), opened)
}

func votesOf(t event.OpenTrial) string {
	if t.Jury == 0 {
		return "no jury yet"
	}
	return fmt.Sprintf("%d guilty, %d innocent of %d", t.Guilty, t.Innocent, t.Jury)
}

// judging is what this client has to audit, and its part in trials.
func (s seen) judging(width int) []string {
	var lines []string
	for _, t := range s.court.open {
		switch {
		case t.Accused == s.id:
			did := "has to open"
			if t.Opened {
				did = "has opened"
			}
			lines = append(lines, bad.Render("on trial by "+short(t.Accuser)+", "+printable(t.Fault))+": "+did+"; "+votesOf(t))
		case t.Accuser == s.id:
			lines = append(lines, fmt.Sprintf("accused %s (%s): %s", short(t.Accused), printable(t.Fault), votesOf(t)))
		case t.Juror:
			did := fmt.Sprintf("votes by step %d", t.Until)
			if t.Voted {
				did = "has voted"
			}
			lines = append(lines, fmt.Sprintf("juror on %s (%s): %s; %s", short(t.Accused), printable(t.Fault), did, votesOf(t)))
		}
	}
	for _, a := range s.audits.Due {
		did := "computes its gradient"
		switch {
		case a.Judged:
			did = "has judged"
		case a.Sealed:
			did = "has sealed, and is to judge"
		}
		lines = append(lines, fmt.Sprintf("audits %s, the result of step %d: %s", short(a.Trainer), a.Step-1, did))
	}
	if len(lines) == 0 {
		return nil
	}
	return append([]string{rule("audits and trials", width)}, lines...)
}
