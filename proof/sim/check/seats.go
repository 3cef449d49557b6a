package check

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// seated checks the members of a starting epoch, and the ends of their probations.
func (c *Checker) seated(s *coordinator.State, before stateMark) {
	steps, begin := s.Config.ProbationSteps, s.Epoch.StartStep
	newcomers := c.newcomers(before)
	regular, young, fresh := 0, 0, 0
	for i := range s.Epoch.Clients {
		m := &s.Epoch.Clients[i]
		until, seen := c.probation[m.ID]
		if newcomers[m.ID] && m.ProbationUntil != begin+steps || !newcomers[m.ID] && (!seen || m.ProbationUntil != until) {
			c.Violate(SeatsFair, "%s is on probation until step %d in the epoch that begins with step %d; before, its probation ended at step %d", c.NameOf(m.ID), m.ProbationUntil, begin, until)
		}
		switch {
		case newcomers[m.ID]:
			fresh++
		case m.ProbationUntil > begin:
			young++
		default:
			regular++
		}
		c.probation[m.ID] = m.ProbationUntil
	}
	c.drawnFairly(s, before.waited)
	if known := regular + young; steps > 0 && known > 0 {
		if regular == 0 {
			regular, young = young, 0
		}
		if limit := max(max(1, (regular-1)/2)-young, int(s.Config.InitMinClients)-known); fresh > max(0, limit) {
			c.Violate(SeatsFair, "%d newcomers have seats with %d members past their probation and %d on probation, want at most %d newcomers", fresh, regular, young, limit)
		}
	}
}

// newcomers returns the pending clients that have to be drawn. The state may list a client as such
// if it was never a member, was not in the previous epoch, or was ejected in it.
func (c *Checker) newcomers(before stateMark) map[coordinator.ClientID]bool {
	was := make(map[coordinator.ClientID]coordinator.ClientState)
	for id := range c.seats.returns {
		was[id] = coordinator.Healthy
	}
	for i := range before.left {
		was[before.left[i].ID] = before.left[i].State
	}
	newcomers := make(map[coordinator.ClientID]bool)
	for i := range before.waited {
		id, isNew := before.waited[i].ID, before.waited[i].ProbationUntil == 0
		newcomers[id] = isNew
		if state, member := was[id]; member && isNew && state != coordinator.Ejected {
			c.Violate(SeatsFair, "%s is drawn as a newcomer, although it had a seat and was not ejected", c.NameOf(id))
		}
	}
	return newcomers
}

// joins records the seed chain at the time when a client joins. A client that knows the chain of a
// draw could choose a key that the draw favours.
func (c *Checker) joins(s *coordinator.State, from coordinator.ClientID) {
	for i := range s.Pending {
		if s.Pending[i].ID == from && !s.Pending[i].Waited {
			c.joined[from] = s.SeedChain
		}
	}
	c.crowded(s, from)
}

// drawnFairly checks that the pending clients with seats are all former members, and the newcomers
// that the seed chain draws.
func (c *Checker) drawnFairly(s *coordinator.State, waited []coordinator.Client) {
	var newcomers []coordinator.Client
	seats := 0
	for i := range waited {
		_, member := s.Member(waited[i].ID)
		if waited[i].ProbationUntil != 0 {
			if !member {
				c.Violate(SeatsFair, "%s was a member, but has no seat", c.NameOf(waited[i].ID))
			}
			continue
		}
		newcomers = append(newcomers, waited[i])
		if member {
			seats++
		}
	}
	key := func(m coordinator.Client) (late int, rank uint64) {
		hash := sha256.Sum256(append(bytes.Clone(s.SeedChain[:]), m.ID[:]...))
		if chain, known := c.joined[m.ID]; known && chain == s.SeedChain || !known && !m.Waited {
			late = 1
		}
		return late, binary.LittleEndian.Uint64(hash[:]) >> 1
	}
	slices.SortStableFunc(newcomers, func(a, b coordinator.Client) int {
		lateA, rankA := key(a)
		lateB, rankB := key(b)
		return cmp.Or(cmp.Compare(lateA, lateB), cmp.Compare(rankA, rankB))
	})
	for i := range newcomers {
		if _, member := s.Member(newcomers[i].ID); member != (i < seats) {
			c.Violate(SeatsFair, "%s has rank %d (from 0) in the draw for %d seats; it is a member: %t", c.NameOf(newcomers[i].ID), i, seats, member)
		}
	}
}

// skips determines which results of a new round do not count: the results of members on probation,
// if some trainer is past its probation. It compares them with the state.
func (c *Checker) skips(s *coordinator.State, round *coordinator.Round) {
	assignments := round.Assignments(s.Config)
	skipped := make(map[assign.BatchID]bool)
	for _, a := range assignments {
		if s.Config.ProbationSteps > 0 && c.probation[round.Members[a.Member]] > round.Step {
			skipped[a.Batch] = true
		}
	}
	if len(skipped) == len(assignments) {
		clear(skipped)
	}
	for _, a := range assignments {
		if round.Warming.Has(a.Member) != skipped[a.Batch] {
			c.Violate(SeatsFair, "step %d: want the result of %s skipped: %t, but the round has %t",
				round.Step, c.NameOf(round.Members[a.Member]), skipped[a.Batch], round.Warming.Has(a.Member))
		}
	}
	c.chain.skipped[round.Step] = skipped
}

// maxReturns is the maximum number of a member's returns in one term of an epoch.
const maxReturns = 3

// seatsBegin records the seats of a starting epoch.
func (c *Checker) seatsBegin(s *coordinator.State) {
	clear(c.seats.returns)
	for i := range s.Epoch.Clients {
		c.seats.returns[s.Epoch.Clients[i].ID] = 0
		c.staysOut(s, s.Epoch.Clients[i].ID)
	}
}

// rewindSeats adopts the returns of a restarting host.
func (c *Checker) rewindSeats(s *coordinator.State) {
	clear(c.seats.returns)
	for _, members := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range members {
			c.seats.returns[members[i].ID] = int(members[i].Returns)
		}
	}
}

// returned checks an accepted Return: the client had a seat, was no longer in the running round,
// kept its lateness, and did not return too often.
func (c *Checker) returned(s *coordinator.State, from coordinator.ClientID) {
	name, count := c.NameOf(from), 0
	had := false
	if count, had = c.seats.returns[from]; !had {
		c.Violate(OwnSeat, "%s returned without a seat in this epoch", name)
	}
	c.seats.returns[from] = count + 1
	c.staysOut(s, from)
	if count+1 > maxReturns {
		c.Violate(OwnSeat, "%s returns too often: return %d", name, count+1)
	}
	round := s.CurrentRound()
	member, ok := s.Member(from)
	_, late := c.late[from]
	switch {
	case round == nil || s.RunState == coordinator.Cooldown || !ok || member.State != coordinator.Healthy:
		c.Violate(OwnSeat, "%s returns in %v, where returns are not allowed, or is not a healthy member after it", name, s.RunState)
	case slices.Contains(round.Members, from):
		c.Violate(OwnSeat, "%s returns to the round that it left", name)
	case late != (member.Lateness != coordinator.OnTime):
		c.Violate(OwnSeat, "the lateness of %s changed when it returned (late before: %t)", name, late)
	case s.IsPending(from):
		c.Violate(OwnSeat, "%s returned to its seat, but also waits for another seat", name)
	}
	if ok && member.ProbationUntil != c.probation[from] {
		c.Violate(SeatsFair, "%s is on probation until step %[3]d after return %[2]d, want step %[4]d", name, count+1, member.ProbationUntil, c.probation[from])
	}
	delete(c.dropped, from)
}

// seatsKept checks that a round's members had seats at the start of the epoch.
func (c *Checker) seatsKept(s *coordinator.State, round *coordinator.Round) {
	for _, id := range round.Members {
		if _, had := c.seats.returns[id]; !had {
			c.Violate(OwnSeat, "%s is in step %d without a seat", c.NameOf(id), round.Step)
		}
	}
	if len(s.Epoch.Clients)+len(s.Epoch.Exited) != len(c.seats.returns) {
		c.Violate(OwnSeat, "the epoch began with %d seats and has %d in step %d", len(c.seats.returns), len(s.Epoch.Clients)+len(s.Epoch.Exited), round.Step)
	}
}
