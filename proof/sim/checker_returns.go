package sim

import (
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// maxReturns is how often a member may come back into one epoch.
const maxReturns = 3

// seats are those that an epoch began with, and how often each was taken back.
type seats struct {
	returns map[coordinator.ClientID]int
}

// seatsBegin notes who has a seat in an epoch that begins.
func (c *checker) seatsBegin(s *coordinator.State) {
	clear(c.seats.returns)
	for i := range s.Epoch.Clients {
		c.seats.returns[s.Epoch.Clients[i].ID] = 0
		c.staysOut(s, s.Epoch.Clients[i].ID)
	}
}

// rewindSeats takes over the returns of a host that starts again.
func (c *checker) rewindSeats(s *coordinator.State) {
	clear(c.seats.returns)
	for _, members := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range members {
			c.seats.returns[members[i].ID] = int(members[i].Returns)
		}
	}
}

// returned checks an accepted Return: the client had a seat, was not in the running round any
// more, came back as late as it was, and not too often.
func (c *checker) returned(s *coordinator.State, from coordinator.ClientID) {
	name, count := c.world.nameOf(from), 0
	had := false
	if count, had = c.seats.returns[from]; !had {
		c.violate(OwnSeat, "%s had none", name)
	}
	c.seats.returns[from] = count + 1
	c.staysOut(s, from)
	if count+1 > maxReturns {
		c.violate(OwnSeat, "%s returns for the %dth time", name, count+1)
	}
	round := s.CurrentRound()
	member, ok := s.Member(from)
	_, late := c.late[from]
	switch {
	case round == nil || s.RunState == coordinator.Cooldown || !ok || member.State != coordinator.Healthy:
		c.violate(OwnSeat, "%s returns in %v", name, s.RunState)
	case slices.Contains(round.Members, from):
		c.violate(OwnSeat, "%s returns into the round that it left", name)
	case late != (member.Lateness != coordinator.OnTime):
		c.violate(OwnSeat, "%s was late: %t, and comes back as if not", name, late)
	case s.IsPending(from):
		c.violate(OwnSeat, "%s waits for another seat", name)
	}
	if ok && member.ProbationUntil != c.probation[from] {
		c.violate(SeatsFair, "%s returns for the %dth time, and is on probation until step %d, not %d", name, count+1, member.ProbationUntil, c.probation[from])
	}
	delete(c.dropped, from)
}

// seatsKept checks that a round's members had seats when the epoch began.
func (c *checker) seatsKept(s *coordinator.State, round *coordinator.Round) {
	for _, id := range round.Members {
		if _, had := c.seats.returns[id]; !had {
			c.violate(OwnSeat, "%s is in step %d without a seat", c.world.nameOf(id), round.Step)
		}
	}
	if len(s.Epoch.Clients)+len(s.Epoch.Exited) != len(c.seats.returns) {
		c.violate(OwnSeat, "the epoch began with %d seats and has %d in step %d", len(c.seats.returns), len(s.Epoch.Clients)+len(s.Epoch.Exited), round.Step)
	}
}

// signing is what a client signed a result of.
type signing struct {
	machine int
	step    uint32
	batch   assign.BatchID
}

// announces checks that no life of an honest client signs two results.
func (c *checker) announces(m *machine, a wire.ResultAnnouncement) {
	c.pace.heard(m, a, c.world.now)
	if !m.honest() {
		return
	}
	of := signing{m.index, a.Step, a.Batch}
	if blob, known := c.signed[of]; known && blob != a.Blob {
		c.violate(SignedOnce, "%s signs two results of batch %v in step %d", m.name(), a.Batch, a.Step)
	}
	c.signed[of] = a.Blob
}
