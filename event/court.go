package event

import (
	"math/bits"
	"reflect"
	"slices"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// Court tells what changed of a run's trials and ejections, and of what a member has to audit.
type Court struct {
	Member coordinator.ClientID // whose audits and seats on juries are told; zero: of nobody

	trials  Trials
	audits  Audits
	ejected []coordinator.Ejection
}

// News returns the events of what a state has that the one before had not.
func (c *Court) News(s *coordinator.State) (news []Body) {
	if now := c.trialsOf(s); !reflect.DeepEqual(now, c.trials) {
		c.trials = now
		news = append(news, now)
	}
	if now := c.auditsOf(s); !reflect.DeepEqual(now, c.audits) {
		c.audits = now
		news = append(news, now)
	}
	if slices.Equal(s.Authority.Ejections, c.ejected) {
		return news
	}
	for _, e := range s.Authority.Ejections {
		if !slices.Contains(c.ejected, e) {
			news = append(news, Ejected{Client: nameOf(e.Client), Until: e.Until, Reason: e.Reason.String(), Step: s.Progress.Step})
		}
	}
	c.ejected = slices.Clone(s.Authority.Ejections)
	return news
}

func (c *Court) trialsOf(s *coordinator.State) (now Trials) {
	for i := range s.Epoch.Trials {
		t := &s.Epoch.Trials[i]
		now.Open = append(now.Open, OpenTrial{
			Accused: nameOf(t.Accused), Accuser: nameOf(t.Accuser), Fault: t.Fault.String(), Since: t.Since, Until: t.VoteUntil(),
			Opened: t.Opening != [32]byte{}, Jury: len(t.Jury), Guilty: bits.OnesCount32(t.Guilty), Innocent: bits.OnesCount32(t.Innocent),
			Juror: t.IsJuror(c.Member), Voted: t.HasVoted(c.Member),
		})
	}
	return now
}

func (c *Court) auditsOf(s *coordinator.State) (now Audits) {
	if c.Member == (coordinator.ClientID{}) || s.Config.VerificationPercent == 0 {
		return now
	}
	for _, a := range s.Audits(c.Member) {
		now.Due = append(now.Due, DueAudit{Step: a.Step, Trainer: nameOf(a.Trainer), Sealed: a.Sealed, Judged: a.Judged})
	}
	return now
}

func nameOf(id coordinator.ClientID) string { return identity.ID(id).String() }
