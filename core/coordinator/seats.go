package coordinator

import (
	"cmp"
	"crypto/sha256"
	"math"
	"slices"
)

// isNew reports whether the client is not known to have been a member.
func (c Client) isNew() bool { return c.ProbationUntil == 0 }

// probation returns the number of steps for which the results of a new member do not count. It is 0
// in a permissioned run, because the join authority has admitted the member.
func (s *State) probation() uint32 {
	if s.Authority.Permissioned {
		return 0
	}
	return s.Config.ProbationSteps
}

// probationEnd returns the end of the probation of a client that becomes a member now.
func (s *State) probationEnd() uint32 {
	return s.Progress.Step + min(s.probation(), math.MaxUint32-s.Progress.Step)
}

// onProbation reports whether a member's result of a step does not count.
func (s *State) onProbation(c *Client, step uint32) bool {
	return s.probation() != 0 && step < c.ProbationUntil
}

// ProbationLeft returns the number of rounds, with the running or next round, in which the results of a
// member do not count because it is on probation. It is 0 for other clients, and while no member is past
// its probation: then all results count.
func (s *State) ProbationLeft(id ClientID) uint32 {
	step, left, past := s.Progress.Step, uint32(0), false
	for i := range s.Epoch.Clients {
		switch c := &s.Epoch.Clients[i]; {
		case c.State != Healthy:
		case !s.onProbation(c, step):
			past = true
		case c.ID == id:
			left = c.ProbationUntil - step
		}
	}
	if !past {
		return 0
	}
	return left
}

// credit gives a client that joins what its key keeps as a former member, however it left: its end of
// probation, its offer and its level. The client is a newcomer if the key is not known as a member or
// was ejected. A client that left is known until the end of the epoch after its last one, and longer
// while epochs record no model.
func (s *State) credit(joins *Client) {
	for _, clients := range [...][]Client{s.Pending, s.Epoch.Clients, s.Epoch.Exited, s.Departed} {
		i := indexOf(clients, joins.ID)
		if i < 0 {
			continue
		}
		if former := &clients[i]; former.State != Ejected {
			joins.ProbationUntil, joins.Offer, joins.Level = former.ProbationUntil, former.Offer, former.Level
		}
		return
	}
}

// hasOffice reports whether the key is an authority or the host of the run.
func (s *State) hasOffice(id ClientID) bool {
	return id == s.Host || id == s.Authority.Main || id == s.Authority.Join
}

// isEvictable reports whether a pending client may be evicted: it was never a member, and has no
// role and no authorization.
func (s *State) isEvictable(c *Client) bool {
	return c.isNew() && !s.Authority.Permissioned && !s.hasOffice(c.ID)
}

// evictIfFull makes sure that Pending has a slot for a key that joins. If all slots are taken, it evicts
// one of the clients for which isEvictable is true. The seed chain and the joining key select the
// client, so early clients cannot keep others out permanently. In Warmup, the pending clients and
// the members together must fit into the slots, because all of them may become pending again.
func (s *State) evictIfFull(from ClientID) error {
	room := MaxClients
	if s.RunState == Warmup {
		room -= s.HealthyCount()
		if s.isHealthy(from) {
			room++ // the sender gives up its seat
		}
	}
	if len(s.Pending) < room {
		return nil
	}
	candidates := 0
	for i := range s.Pending {
		if s.isEvictable(&s.Pending[i]) {
			candidates++
		}
	}
	if candidates == 0 {
		return ErrFull
	}
	drawn := int(s.rank(from) % uint64(candidates))
	for i := range s.Pending {
		if !s.isEvictable(&s.Pending[i]) {
			continue
		}
		if drawn == 0 {
			client := s.Pending[i]
			client.State = Withdrawn
			s.Pending = slices.Delete(s.Pending, i, i+1)
			s.depart(client)
			break
		}
		drawn--
	}
	return nil
}

// rank returns the rank of a key in a draw by the seed chain: the first eight bytes of sha256(chain
// ‖ key).
func (s *State) rank(id ClientID) uint64 {
	hash := sha256.Sum256(append(slices.Clone(s.SeedChain[:]), id[:]...))
	return le.Uint64(hash[:])
}

// drawNewcomers draws the given number of pending newcomers for free seats: the newcomers with the
// lowest ranks. A client that joined when the chain was already known could have chosen its key to
// get a low rank, so such clients come last.
func (s *State) drawNewcomers(places int) (drawn MemberSet) {
	type ticket struct {
		rank  uint64
		index int
	}
	var tickets []ticket
	for i := range s.Pending {
		client := &s.Pending[i]
		if !client.isNew() {
			continue
		}
		rank := s.rank(client.ID) >> 1
		if !client.Waited {
			rank |= 1 << 63
		}
		tickets = append(tickets, ticket{rank, i})
	}
	slices.SortStableFunc(tickets, func(a, b ticket) int { return cmp.Compare(a.rank, b.rank) })
	for _, t := range tickets[:min(places, len(tickets))] {
		drawn.add(t.index)
	}
	return drawn
}

// makeRoom removes pending clients until at most room of them are left: first the newcomers that are
// not drawn, then the last of the former members.
func (s *State) makeRoom(room int) {
	over := len(s.Pending) - room
	if over <= 0 {
		return
	}
	newcomers := s.countNewcomers()
	drawn := s.drawNewcomers(max(0, newcomers-over))
	kept := s.Pending[:0]
	for i, client := range s.Pending {
		if !client.isNew() || drawn.Has(i) {
			kept = append(kept, client)
		}
	}
	s.Pending = kept[:min(len(kept), room)]
}

func (s *State) countNewcomers() int {
	count := 0
	for i := range s.Pending {
		if s.Pending[i].isNew() {
			count++
		}
	}
	return count
}

// seatPending returns the members of a starting epoch, in the order in which they waited: all
// former members, and as many newcomers as there are seats. The others stay pending.
func (s *State) seatPending() []Client {
	regular, young := 0, 0
	for i := range s.Pending {
		switch client := &s.Pending[i]; {
		case client.isNew():
		case s.onProbation(client, s.Progress.Step):
			young++
		default:
			regular++
		}
	}
	drawn := s.drawNewcomers(s.places(regular, young))
	var members, waiting []Client
	for i, client := range s.Pending {
		if client.isNew() && !drawn.Has(i) {
			waiting = append(waiting, client)
		} else {
			members = append(members, client)
		}
	}
	s.Pending = waiting
	return members
}

// places returns how many newcomers may become members of an epoch that has regular members, past
// their probation, and young members, on probation. Newcomers start on probation, and fewer than a
// third of all members may be on probation. There are two exceptions: one newcomer may come if no
// member is on probation, and as many may come as InitMinClients requires. If all members are on
// probation, as in a new run, they count as regular. The first epoch accepts all clients.
func (s *State) places(regular, young int) int {
	known := regular + young
	if s.probation() == 0 || known == 0 {
		return MaxClients - known
	}
	if regular == 0 {
		regular, young = young, 0
	}
	return max(0, max(1, (regular-1)/2)-young, int(s.Config.InitMinClients)-known)
}
