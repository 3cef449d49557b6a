package check

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// judged records the effect of an accepted health check about a step on a member. denied reports
// whether a quorum of the witnesses did not have the member's result.
func (c *Checker) judged(s *coordinator.State, step uint32, id coordinator.ClientID, denied bool) {
	member, ok := s.Member(id)
	if !ok {
		return
	}
	before, late := c.late[id]
	switch {
	case member.State == coordinator.Dropped && !c.dropped[id]:
		if !late || before >= step || !denied {
			c.Violate(NotFramed, "%s was dropped for step %d; found late before: %t (step %d), denied by a quorum: %t", c.NameOf(id), step, late, before, denied)
		}
		c.dropped[id] = true
		c.keepsSeat(id, step)
	case !late && member.Lateness != coordinator.OnTime:
		c.late[id] = step
	case member.Lateness == coordinator.Slow && !c.slow[id]:
		if !late || before >= step || denied {
			c.Violate(NotFramed, "%s became slow for step %d; found late before: %t (step %d), denied by a quorum: %t", c.NameOf(id), step, late, before, denied)
		}
		c.slow[id] = true
	}
}

// keepsSeat checks that a dropped member is not honest, if the only faults of the run are Byzantine
// members and slow links.
func (c *Checker) keepsSeat(id coordinator.ClientID, step uint32) {
	if c.run.Plan.Links != nil && c.run.Plan.Faults&^scenario.Byzantine == 0 && c.honest(id) {
		c.Violate(KeepsSeat, "%s was dropped for step %d", c.NameOf(id), step)
	}
}

// mostJudged checks that findings drop at most a third of the epoch's first members in a round, and
// make at most a third slow.
func (c *Checker) mostJudged(s *coordinator.State) {
	limit, dropped := max(1, (len(s.Epoch.Clients)+len(s.Epoch.Exited))/3), 0
	for i := range s.Epoch.Clients {
		if s.Epoch.Clients[i].State == coordinator.Dropped {
			dropped++
		}
	}
	slow := 0
	for _, is := range c.slow {
		if is {
			slow++
		}
	}
	if dropped > limit || slow > limit {
		c.Violate(NotFramed, "%d members were dropped in a round and %d are slow in an epoch, want at most %d of each", dropped, slow, limit)
	}
}

// epochBegins clears the findings of the previous epoch.
func (c *Checker) epochBegins(s *coordinator.State) {
	clear(c.late)
	clear(c.slow)
	clear(c.dropped)
	c.seatsBegin(s)
	if slices.ContainsFunc(s.Epoch.Clients, func(m coordinator.Client) bool { return m.Lateness != coordinator.OnTime }) {
		c.Violate(NotFramed, "a member is late at the start of a new epoch")
	}
	if c.run.Cast.Overrun(s.Epoch.Clients) {
		c.Violate(Progress, "the coalition is a third of an epoch's members: the plan is wrong")
	}
}

// rewindFindings adopts the findings of a restarting host. Findings lost in the crash were never
// published.
func (c *Checker) rewindFindings(s *coordinator.State) {
	for _, members := range [][]coordinator.Client{s.Pending, s.Departed, s.Epoch.Clients, s.Epoch.Exited} {
		for i := range members {
			if m := &members[i]; m.ProbationUntil != 0 {
				c.probation[m.ID] = m.ProbationUntil
			}
		}
	}
	late := make(map[coordinator.ClientID]uint32)
	clear(c.slow)
	clear(c.dropped)
	for _, members := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range members {
			m := &members[i]
			if m.Lateness == coordinator.OnTime {
				continue
			}
			late[m.ID], c.slow[m.ID] = c.late[m.ID], m.Lateness == coordinator.Slow
			c.dropped[m.ID] = m.State == coordinator.Dropped
		}
	}
	c.late = late
}
