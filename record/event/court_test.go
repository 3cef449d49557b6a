package event_test

import (
	"reflect"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

func id(n byte) coordinator.ClientID { return coordinator.ClientID{n} }

func name(n byte) string { return identity.ID(id(n)).String() }

// wantNews compares the news with the wanted events, and checks that they are reported only once.
func wantNews(t *testing.T, c *event.Court, s *coordinator.State, news ...event.Body) {
	t.Helper()
	if got := c.News(s); !reflect.DeepEqual(got, news) {
		t.Errorf("got %+v, want %+v", got, news)
	}
	if again := c.News(s); again != nil {
		t.Errorf("reported again: %+v", again)
	}
}

// TestCourt checks that the beginning, each change and the end of a trial are reported.
func TestCourt(t *testing.T) {
	member, host := event.Court{Member: id(1)}, event.Court{}
	s := &coordinator.State{Progress: coordinator.Progress{Step: 7}}
	wantNews(t, &member, s)
	wantNews(t, &host, s)
	s.Epoch.Clients = []coordinator.Client{{ID: id(1), Juror: 2, Voted: 2}}
	s.Trials = []coordinator.Trial{{
		Slot: 1, Accused: id(2), Accuser: id(3), Step: 4, Fault: coordinator.FaultSilent, Since: 6, Jurors: 2, Guilty: 1,
	}}
	begins := event.Trial{Accused: name(2), Accuser: name(3), Step: 4, Fault: "opens to nobody", What: event.TrialBegins}
	open := event.OpenTrial{Accused: name(2), Accuser: name(3), Step: 4, Fault: "opens to nobody", Since: 6, Until: 12, Jury: 2, Guilty: 1}
	wantNews(t, &host, s, begins, event.Trials{Open: []event.OpenTrial{open}})
	open.Juror, open.Voted = true, true
	wantNews(t, &member, s, begins, event.Trials{Open: []event.OpenTrial{open}})
	s.Trials[0].Innocent, open.Innocent = 1, 1
	wantNews(t, &member, s, event.Trials{Open: []event.OpenTrial{open}})
}

// TestEndsOfTrials checks that an ejection before the trial does not count as its end.
func TestEndsOfTrials(t *testing.T) {
	for subject, ejected := range map[string]coordinator.Ejection{
		event.TrialConvicts: {Client: id(2), Until: 4, Reason: coordinator.FoundGuilty},
		event.TrialRefutes:  {Client: id(3), Until: 4, Reason: coordinator.AccusedWrongly},
		event.TrialEnds:     {Client: id(2), Until: 4, Reason: coordinator.TwoResults},
	} {
		c, s := event.Court{}, &coordinator.State{Progress: coordinator.Progress{Step: 7}}
		s.Authority.Ejections = []coordinator.Ejection{{Client: id(3), Until: 9, Reason: coordinator.AccusedWrongly}}
		s.Trials = []coordinator.Trial{{Accused: id(2), Accuser: id(3), Step: 4, Fault: coordinator.FaultResult, Since: 6}}
		c.News(s)
		s.Trials = nil
		s.Authority.Ejections = append(s.Authority.Ejections, ejected)
		wantNews(t, &c, s, event.Trial{Accused: name(2), Accuser: name(3), Step: 4, Fault: "wrong result", What: subject}, event.Trials{},
			event.Ejected{Client: identity.ID(ejected.Client).String(), Until: 4, Reason: ejected.Reason.String(), Step: 7})
	}
}

func TestEjections(t *testing.T) {
	c, s := event.Court{}, &coordinator.State{Progress: coordinator.Progress{Step: 7}}
	s.Authority.Ejections = []coordinator.Ejection{{Client: id(5), Until: 2}, {Client: id(2), Until: 4, Reason: coordinator.FoundGuilty}}
	first := event.Ejected{Client: name(5), Until: 2, Reason: "by the main authority", Step: 7}
	second := event.Ejected{Client: name(2), Until: 4, Reason: "a jury found it guilty", Step: 7}
	wantNews(t, &c, s, first, second)
	s.Authority.Ejections = append(s.Authority.Ejections[1:], coordinator.Ejection{Client: id(5), Until: 9, Reason: coordinator.TwoResults})
	wantNews(t, &c, s, event.Ejected{Client: name(5), Until: 9, Reason: "it signed two results", Step: 7})
}
