package programtest

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// toEndOfTerm moves a running epoch, without playing its rounds, to the last round of a term.
func toEndOfTerm(s *coordinator.State) {
	round := s.CurrentRound()
	skipped := coordinator.TermRounds - 1 - round.Height%coordinator.TermRounds
	s.Progress.Step += skipped
	for i := range s.Epoch.Rounds {
		s.Epoch.Rounds[i].Step += skipped
		s.Epoch.Rounds[i].Height += skipped
	}
}

// termsOfAnEpoch has members that are late or slow, or have no returns left, at the end of a term
// and before it. Only a new term in a running epoch forgives them.
func termsOfAnEpoch(r *pair) error {
	c := begun(r, 12, false)
	c.change(func(s *coordinator.State) {
		s.Config.RoundsPerEpoch = 100
		showLife(s)
	})
	c.tick(30*second, coordinator.RoundTrain)
	c.witness()
	c.tick(5*second, coordinator.RoundTrain)
	c.change(burden)
	before := r.s.Clone()
	c.must(clientID(11), coordinator.Withdraw{Client: clientID(11)})
	c.witness()
	c.tick(5*second, coordinator.RoundTrain)
	if r.s.Epoch.Clients[2].Lateness != before.Epoch.Clients[2].Lateness || r.s.Epoch.Clients[3].Returns != coordinator.MaxReturns {
		c.fail("forgiven before the end of a term: %s", r.s.String())
	}
	c.want(coordinator.ErrFull, clientID(11), coordinator.Return{Epoch: r.s.Progress.Epoch})

	c.change(toEndOfTerm)
	c.witness()
	c.tick(5*second, coordinator.RoundTrain)
	burdened := func(m coordinator.Client) bool { return m.Lateness != coordinator.OnTime || m.Returns > 0 }
	if slices.ContainsFunc(slices.Concat(r.s.Epoch.Clients, r.s.Epoch.Exited), burdened) || r.s.Epoch.Clients[2].Active || r.s.Epoch.Clients[0].Complaints != 2 {
		c.fail("not forgiven by a new term, or not only lateness and returns: %s", r.s.String())
	}
	c.must(clientID(11), coordinator.Return{Epoch: r.s.Progress.Epoch})

	c.change(func(s *coordinator.State) {
		toEndOfTerm(s)
		s.Config.RoundsPerEpoch = coordinator.TermRounds * (1 + s.CurrentRound().Height/coordinator.TermRounds)
		burden(s)
	})
	c.witness()
	c.tick(5*second, coordinator.Cooldown)
	if r.s.Epoch.Clients[2].Lateness == coordinator.OnTime {
		c.fail("forgiven by a term that has no rounds: %s", r.s.String())
	}
	return c.err
}

// burden makes members late and slow, and gives them the maximum number of returns.
func burden(s *coordinator.State) {
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		client.Lateness = coordinator.Lateness(i % 4)
		client.Returns, client.Complaints = coordinator.MaxReturns, 2
		client.Active = i%3 > 0
	}
	s.Epoch.Clients[2].Active = true
}
