package sim

import (
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// courtsOver checks what the end of a round made of trials and verifiers: who leaves when it should
// open is shut out, and who did not judge or vote is late, and then dropped.
func (c *checker) courtsOver(s *coordinator.State, before stateMark) {
	round := s.RoundOfStep(before.step)
	found, shut := make(map[coordinator.ClientID]bool), make(map[coordinator.ClientID]bool)
	if len(round.Witnesses) >= quorumOf(electedOf(round, s.Config)) {
		for _, t := range slices.Clone(c.courts.trials) {
			switch {
			case !t.opened && before.step == t.since+openWithin && c.isGone(s, round, before, t.accused):
				shut[t.accused] = true
				c.courts.end(t)
			case before.step >= t.since+voteWithin:
				for _, id := range t.jury {
					_, voted := t.votes[id]
					found[id] = found[id] || !voted
				}
				c.courts.end(t)
			}
		}
		if earlier := s.RoundOfStep(before.step - 1); earlier != nil {
			for _, id := range earlier.Members {
				if _, audits := mustAudit(s, earlier.Step, id); audits && !c.courts.judged[duty{earlier.Step, id}] && slices.Contains(round.Members, id) {
					found[id] = true
				}
			}
		}
	}
	c.foundIdle(s, before, found, shut)
}

// isGone reports whether a client was no healthy member any more before a round was over, or gave no
// sign of life in it.
func (c *checker) isGone(s *coordinator.State, round *coordinator.Round, before stateMark, id coordinator.ClientID) bool {
	member := slices.Index(round.Members, id)
	healthy := slices.ContainsFunc(before.members, func(m coordinator.Client) bool { return m.ID == id && m.State == coordinator.Healthy })
	proved := slices.ContainsFunc(round.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == member })
	return member < 0 || !healthy || !proved && !c.courts.sealed[duty{round.Step, id}] && heldBy(round, id) < quorumOf(electedOf(round, s.Config))
}

// foundIdle compares the members before and after a round's end.
func (c *checker) foundIdle(s *coordinator.State, before stateMark, found, shut map[coordinator.ClientID]bool) {
	room, dropped := max(1, before.seats/3), 0
	for i := range before.members {
		if before.members[i].State == coordinator.Dropped {
			room--
		}
	}
	for i := range before.members {
		m := before.members[i]
		if m.State != coordinator.Healthy {
			continue
		}
		now, stays := s.Member(m.ID)
		late := m.Lateness != coordinator.OnTime
		switch {
		case shut[m.ID]:
			if stays || s.MayReturn(m.ID) {
				c.violate(FairlyTried, "%s gave no sign of life when it should have opened, and is a member or may return", c.world.nameOf(m.ID))
			}
			c.dropped[m.ID] = true
			c.seats.returns[m.ID] = maxReturns
		case !stays:
			if !found[m.ID] || m.Lateness != coordinator.Late {
				c.violate(NotFramed, "%s was dropped at the end of step %d; idle: %t, late: %t", c.world.nameOf(m.ID), before.step, found[m.ID], late)
			}
			c.dropped[m.ID] = true
			dropped++
		case found[m.ID] && !late:
			if now.Lateness != coordinator.Late {
				c.violate(AuditsRight, "%s did not do its duty by step %d and is on time", c.world.nameOf(m.ID), before.step)
			}
			c.late[m.ID] = before.step - 1
		case found[m.ID] && m.Lateness == coordinator.Late && dropped < room:
			c.missed = append(c.missed, m.ID)
		case (now.Lateness != coordinator.OnTime) != late:
			c.violate(NotFramed, "%s did its duty by step %d, and is late: %t", c.world.nameOf(m.ID), before.step, !late)
		}
	}
	if dropped > max(room, 0) {
		c.violate(NotFramed, "%d idle members were dropped in step %d, there was room for %d", dropped, before.step, room)
	}
	if len(c.missed) > 0 && dropped < room {
		c.violate(AuditsRight, "%s did not do its duty by step %d again, and stays", c.world.nameOf(c.missed[0]), before.step)
	}
	c.missed = nil
	for id := range shut { // who had left before
		if s.MayReturn(id) {
			c.violate(FairlyTried, "%s left when it should have opened, and may return", c.world.nameOf(id))
		}
		c.seats.returns[id] = maxReturns
	}
}
