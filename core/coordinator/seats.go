package coordinator

import (
	"cmp"
	"crypto/sha256"
	"math"
	"slices"
)

// isNew reports whether the client was never a member, as far as is known.
func (c Client) isNew() bool { return c.ProbationUntil == 0 }

// probation returns for how many steps the results of a new member do not count. Whom the join
// authority admitted needs none.
func (s *State) probation() uint32 {
	if s.Authority.Permissioned {
		return 0
	}
	return s.Config.ProbationSteps
}

// probationEnd returns until when a client that becomes a member now is on probation.
func (s *State) probationEnd() uint32 {
	return s.Progress.Step + min(s.probation(), math.MaxUint32-s.Progress.Step)
}

// onProbation reports whether a member's result of a step does not count.
func (s *State) onProbation(c *Client, step uint32) bool {
	return s.probation() != 0 && step < c.ProbationUntil
}

// credit returns the probation of a key that joins: what it had, however it left, or 0, a newcomer's, when
// it is not known as a member or was ejected. A client that left is known until the epoch after the one that
// it left is over, and longer while epochs record no model.
func (s *State) credit(id ClientID) uint32 {
	for _, clients := range [...][]Client{s.Epoch.Clients, s.Epoch.Exited, s.Departed} {
		if i := indexOf(clients, id); i >= 0 && clients[i].State != Ejected {
			return clients[i].ProbationUntil
		} else if i >= 0 {
			return 0
		}
	}
	return 0
}

// hasOffice reports whether the key governs the run or hosts it.
func (s *State) hasOffice(id ClientID) bool {
	return id == s.Host || id == s.Authority.Main || id == s.Authority.Join
}

// mayGiveWay reports whether another one may take the place of a pending client: it was no
// member, and has no office and no authorization.
func (s *State) mayGiveWay(c *Client) bool {
	return c.isNew() && !s.Authority.Permissioned && !s.hasOffice(c.ID)
}

// makeWay makes sure that there is a place among the pending for a key that joins. When all places are
// taken, one of the clients that may give way departs; the seed chain and the key draw which one. So
// nobody keeps others out for ever by having come first. In Warmup the pending and the members have
// to fit into the places together, since all of them may have to wait again.
func (s *State) makeWay(from ClientID) error {
	room := MaxClients
	if s.RunState == Warmup {
		room -= s.HealthyCount()
		if s.isHealthy(from) {
			room++ // it gives up its seat
		}
	}
	if len(s.Pending) < room {
		return nil
	}
	candidates := 0
	for i := range s.Pending {
		if s.mayGiveWay(&s.Pending[i]) {
			candidates++
		}
	}
	if candidates == 0 {
		return ErrFull
	}
	drawn := int(s.rank(from) % uint64(candidates))
	for i := range s.Pending {
		if !s.mayGiveWay(&s.Pending[i]) {
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

// rank is what the seed chain draws for a key: the first eight bytes of sha256(chain ‖ key).
func (s *State) rank(id ClientID) uint64 {
	hash := sha256.Sum256(append(slices.Clone(s.SeedChain[:]), id[:]...))
	return le.Uint64(hash[:])
}

// drawNewcomers returns which of the pending newcomers are drawn if there are so many places:
// those of the lowest ranks. A client that joined when the chain was known already could have made its
// key to suit, and comes behind the others.
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

// makeRoom removes pending clients until there are at most room of them: first newcomers that are not
// drawn, then the last of those that were members.
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

// seatPending returns the members of an epoch that begins, in the order in which they waited:
// all that were members before, and as many newcomers as there are places for. The others go on
// waiting.
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

// places returns how many newcomers may become members of an epoch, beside regular members that are
// past their probation and young ones that are on it. A newcomer is on probation, and members on
// probation have to be fewer than a third of all. Two things go before that: one newcomer may come if
// nobody is on probation, and as many may come as InitMinClients needs. If all members are on
// probation, as in a new run, they count as regular. The first epoch takes everybody.
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
