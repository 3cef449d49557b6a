package check

import "github.com/psyche-go/psyche/core/coordinator"

// termRounds is the number of rounds in a term, after which findings and returns are cleared.
const termRounds = 32

// inTerm starts a new term if a round is the first of one. In every starting round it compares the
// lateness and the returns of members with the events of the running term.
func (c *Checker) inTerm(s *coordinator.State, round *coordinator.Round) {
	if round.Height%termRounds == 0 {
		clear(c.late)
		clear(c.slow)
		for id := range c.seats.returns {
			c.seats.returns[id] = 0
		}
	}
	for _, members := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range members {
			m := &members[i]
			if _, late := c.late[m.ID]; late != (m.Lateness != coordinator.OnTime) || c.slow[m.ID] != (m.Lateness == coordinator.Slow) {
				c.Violate(NotFramed, "%s has lateness %d in step %d; found late in this term: %t, slow: %t", c.NameOf(m.ID), m.Lateness, round.Step, late, c.slow[m.ID])
			}
			if want := c.seats.returns[m.ID]; int(m.Returns) != want {
				c.Violate(OwnSeat, "%s has returned %d times by step %d of its term, not %d times", c.NameOf(m.ID), m.Returns, round.Step, want)
			}
		}
	}
}
