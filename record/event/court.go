package event

import (
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Court detects changes in a run's trials and ejections.
type Court struct {
	Member coordinator.ClientID // whose seats on juries are reported; zero: none

	trials  []OpenTrial
	ejected []coordinator.Ejection
}

// News returns the events for the differences between a state and the state of the previous call.
func (c *Court) News(s *coordinator.State) (news []Body) {
	now := c.trialsOf(s)
	for _, t := range now {
		if !has(c.trials, t) {
			news = append(news, Trial{t.Accused, t.Accuser, t.Step, t.Fault, TrialBegins})
		}
	}
	for _, t := range c.trials {
		if !has(now, t) {
			news = append(news, Trial{t.Accused, t.Accuser, t.Step, t.Fault, c.outcome(s, t)})
		}
	}
	if !slices.Equal(now, c.trials) {
		c.trials = now
		news = append(news, Trials{Open: now})
	}
	for _, e := range s.Authority.Ejections {
		if !slices.Contains(c.ejected, e) {
			news = append(news, Ejected{Client: nameOf(e.Client), Until: e.Until, Reason: e.Reason.String(), Step: s.Progress.Step})
		}
	}
	c.ejected = slices.Clone(s.Authority.Ejections)
	return news
}

// has reports whether trials contains t. It ignores the fields that change during a trial.
func has(trials []OpenTrial, t OpenTrial) bool {
	return slices.ContainsFunc(trials, func(u OpenTrial) bool {
		return u.Accused == t.Accused && u.Step == t.Step && u.Accuser == t.Accuser && u.Since == t.Since
	})
}

// outcome returns the outcome of a trial, according to the newly excluded members.
func (c *Court) outcome(s *coordinator.State, t OpenTrial) string {
	for _, e := range s.Authority.Ejections {
		switch name := nameOf(e.Client); {
		case slices.Contains(c.ejected, e):
		case name == t.Accused && e.Reason == coordinator.FoundGuilty:
			return TrialConvicts
		case name == t.Accuser && e.Reason == coordinator.AccusedWrongly:
			return TrialRefutes
		}
	}
	return TrialEnds
}

func (c *Court) trialsOf(s *coordinator.State) (now []OpenTrial) {
	for i := range s.Trials {
		t := &s.Trials[i]
		juror, voted := s.Juror(c.Member, t.Slot)
		now = append(now, OpenTrial{
			Accused: nameOf(t.Accused), Accuser: nameOf(t.Accuser), Step: t.Step, Fault: t.Fault.String(),
			Since: t.Since, Until: t.Since + s.Config.TrialRounds(),
			Jury: int(t.Jurors), Guilty: int(t.Guilty), Innocent: int(t.Innocent), Juror: juror, Voted: voted,
		})
	}
	return now
}

func nameOf(id coordinator.ClientID) string { return identity.ID(id).String() }
