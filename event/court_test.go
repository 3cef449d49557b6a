package event_test

import (
	"reflect"
	"testing"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// TestCourt: what is new is told once, and the end of the last trial too.
func TestCourt(t *testing.T) {
	id := func(n byte) coordinator.ClientID { return coordinator.ClientID{n} }
	name := func(n byte) string { return identity.ID(id(n)).String() }
	member, host := event.Court{Member: id(1)}, event.Court{}
	s := &coordinator.State{Progress: coordinator.Progress{Step: 7}}
	want := func(c *event.Court, news ...event.Body) {
		t.Helper()
		if got := c.News(s); !reflect.DeepEqual(got, news) {
			t.Errorf("got %+v, want %+v", got, news)
		}
		if again := c.News(s); again != nil {
			t.Errorf("told again: %+v", again)
		}
	}
	want(&member)
	want(&host)
	s.Epoch.Trials = []coordinator.Trial{{
		Accused: id(2), Accuser: id(3), Fault: coordinator.FaultUnopened, Since: 6, Jury: []coordinator.ClientID{id(4), id(1)}, Guilty: 2,
	}}
	open := event.OpenTrial{Accused: name(2), Accuser: name(3), Fault: "did not open", Since: 6, Until: 12, Jury: 2, Guilty: 1}
	want(&host, event.Trials{Open: []event.OpenTrial{open}})
	open.Juror, open.Voted = true, true
	want(&member, event.Trials{Open: []event.OpenTrial{open}})
	s.Epoch.Trials = []coordinator.Trial{}
	s.Authority.Ejections = []coordinator.Ejection{{Client: id(5), Until: 2}, {Client: id(2), Until: 4, Reason: coordinator.FoundGuilty}}
	first := event.Ejected{Client: name(5), Until: 2, Reason: "by the main authority", Step: 7}
	second := event.Ejected{Client: name(2), Until: 4, Reason: "a jury found it guilty", Step: 7}
	want(&member, event.Trials{}, first, second)
	want(&host, event.Trials{}, first, second)
	s.Authority.Ejections = append(s.Authority.Ejections[1:], coordinator.Ejection{Client: id(5), Until: 9, Reason: coordinator.TwoResults})
	want(&member, event.Ejected{Client: name(5), Until: 9, Reason: "it signed two results", Step: 7})
}
