package coordinator

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// governor returns the sender of an authority's action: the key of by=, or the main authority.
func (s *scenario) governor(d *datadriven.TestData) ClientID {
	if by := text(d, "by", ""); by != "" {
		return clientID(by)
	}
	return s.state.Authority.Main
}

// govern performs an authority's action on every client that is named without a value.
func (s *scenario) govern(d *datadriven.TestData, action func(ClientID) Action) string {
	var out strings.Builder
	for _, name := range s.actors(d) {
		a := action(clientID(name))
		from := s.governor(d)
		if _, ok := a.(Authorize); ok && text(d, "by", "") == "" {
			from = s.state.Authority.Join
		}
		out.WriteString(s.outcome(name, s.apply(from, a)))
	}
	return out.String()
}

func (s *scenario) configure(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	a := UpdateConfig{Config: s.state.Config, Model: s.state.Model}
	a.Model.Checkpoint = testModel().Checkpoint
	for _, arg := range d.CmdArgs {
		setKey(t, d, &a.Config, &a.Model, arg)
	}
	return s.outcome("", s.apply(s.governor(d), a))
}

func (s *scenario) delegate(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	return s.each(d, func(id ClientID) Action {
		a := SetDelegates{Number: 1}
		if authorization, ok := s.state.Authority.Authorization(id); ok {
			a.Number = authorization.Number
		}
		a.Number = number(t, d, "number", a.Number)
		for _, name := range list(d, "to") {
			s.names = append(s.names, name)
			a.Delegates = append(a.Delegates, clientID(name))
		}
		return a
	})
}
