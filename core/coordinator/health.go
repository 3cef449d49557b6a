package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/core/bloom"
)

// Score returns the number of the round's witnesses that hold the client's result.
func (r *Round) Score(id ClientID) int {
	keys := bloom.NewKeys(r.Seed)
	return r.score(&keys, id)
}

// score is like Score, with the keys of the round's filters as a parameter.
func (r *Round) score(keys *bloom.Keys, id ClientID) int {
	positions := keys.Positions(id[:])
	score := 0
	for i := range r.Witnesses {
		if r.Witnesses[i].Participants.ContainsPositions(positions) {
			score++
		}
	}
	return score
}

// provedMissing reports whether no quorum of witnesses can hold the client's result, even if every
// silent witness holds it. Silent witnesses therefore harm no member. Otherwise one dishonest
// witness and one absent witness could have every member dropped.
func (r *Round) provedMissing(keys *bloom.Keys, id ClientID) bool {
	silent := int(r.WitnessesElected) - len(r.Witnesses)
	return r.HasQuorum() && r.score(keys, id)+silent < int(r.WitnessesNeeded)
}

// denied reports whether the proofs of a quorum of the elected witnesses do not contain the client's
// result.
func (r *Round) denied(keys *bloom.Keys, id ClientID) bool {
	return len(r.Witnesses)-r.score(keys, id) >= int(r.WitnessesNeeded)
}

// Unhealthy returns the members of a finished round that had a batch, but whose results cannot have
// a quorum of witnesses, even if all silent witnesses held them. It omits excused members. It is
// empty if the number of witnesses is below the quorum.
func (r *Round) Unhealthy(c Config) []ClientID {
	if !r.HasQuorum() {
		return nil
	}
	var unhealthy []ClientID
	keys := bloom.NewKeys(r.Seed)
	for _, member := range r.Owners(c) {
		if id := r.Members[member]; !r.Excused.Has(member) && r.provedMissing(&keys, id) {
			unhealthy = append(unhealthy, id)
		}
	}
	return unhealthy
}

// Accusable returns the healthy members whose state would change now if a HealthCheck about the
// newest finished round (step Progress.Step−1) named them.
func (s *State) Accusable() []ClientID {
	if !s.active() {
		return nil
	}
	round := s.RoundOfStep(s.Progress.Step - 1)
	if round == nil {
		return nil
	}
	room, keys := s.room(), bloom.NewKeys(round.Seed)
	return slices.DeleteFunc(round.Unhealthy(s.Config), func(id ClientID) bool {
		client, ok := s.Member(id)
		return !ok || client.State != Healthy || s.isBack(client) || client.afterFinding(room, round.denied(&keys, id)) == client.health()
	})
}

// health is the part of a member's state that findings of witnesses change.
type health struct {
	state    ClientState
	lateness Lateness
}

func (c *Client) health() health { return health{c.State, c.Lateness} }

// room limits how many more members findings may drop in the running round, and how many more may
// become slow in the term. Each limit is a third of the epoch's first members. Findings about more
// members mean that witnesses are dishonest, or that the whole round was slow.
type room struct{ drop, slow int }

func (s *State) room() room {
	third := max(1, s.Seats()/3)
	r := room{third, third}
	for i := range s.Epoch.Clients {
		if s.Epoch.Clients[i].State == Dropped {
			r.drop--
		}
	}
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range clients {
			if clients[i].Lateness == Slow {
				r.slow--
			}
		}
	}
	return r
}

// afterFinding returns the new health of a healthy member after the witnesses of the newest finished
// round have shown that its result does not count. After the first finding in a term the member is
// late. After a second finding, by the newly drawn witnesses of a later round, the member is dropped
// if a quorum of these witnesses denies its result, because a quorum is unlikely to be dishonest.
// Otherwise it becomes slow. A slow member stays, because its result may be missing only because the
// round did not wait for it.
func (c *Client) afterFinding(left room, denied bool) health {
	switch {
	case c.Lateness == OnTime:
		return health{Healthy, FoundLate}
	case c.Lateness == Late && denied && left.drop > 0:
		return health{Dropped, Late}
	case c.Lateness == Late && !denied && left.slow > 0:
		return health{Healthy, Slow}
	default:
		return c.health()
	}
}

// Seats returns the number of members that the running epoch started with or, between epochs, the
// number that left the previous epoch.
func (s *State) Seats() int { return len(s.Epoch.Clients) + len(s.Epoch.Exited) }

// healthCheck applies a member's report that other members were late: according to the witnesses of
// the newest finished round, no quorum can hold their results. The named members become late or
// slow, or are dropped (afterFinding). Dropped members leave when the running round ends.
func (s *State) healthCheck(from ClientID, a HealthCheck) error {
	switch {
	case !s.active():
		return ErrWrongState
	case !s.isHealthy(from):
		return ErrNotMember
	case len(a.Clients) == 0 || len(a.Clients) > MaxClients:
		return ErrInvalidAction
	case a.Step != s.Progress.Step-1:
		return ErrWrongStep
	}
	round := s.RoundOfStep(a.Step)
	if round == nil {
		return ErrWrongStep
	}
	owners, keys := round.Owners(s.Config), bloom.NewKeys(round.Seed)
	var named, denied MemberSet
	for i, id := range a.Clients {
		if slices.Contains(a.Clients[:i], id) {
			return ErrInvalidAction
		}
		member, ok := round.MemberIndex(id)
		if !ok {
			return ErrNotMember
		}
		if _, trained := slices.BinarySearch(owners, member); !trained || round.Excused.Has(member) || !round.provedMissing(&keys, id) {
			return ErrFalseAccusation
		}
		named.add(member)
		if round.denied(&keys, id) {
			denied.add(member)
		}
	}
	changed, left := false, s.room()
	for member, id := range round.Members {
		client, ok := s.Member(id)
		if !named.Has(member) || !ok || client.State != Healthy || s.isBack(client) {
			continue
		}
		after := client.afterFinding(left, denied.Has(member))
		if after == client.health() {
			continue
		}
		if after.state == Dropped {
			left.drop--
		}
		if after.lateness == Slow {
			left.slow--
		}
		client.State, client.Lateness, changed = after.state, after.lateness, true
	}
	if !changed {
		return ErrDuplicate
	}
	return nil
}

// isBack reports whether a member took its seat back since the running round started. Findings about
// earlier rounds are from the time of its absence.
func (s *State) isBack(client *Client) bool {
	return client.Returns > 0 && !slices.Contains(s.CurrentRound().Members, client.ID)
}

// keepFindings changes FoundLate, found in the round that ends, to Late: the next finding, in a
// later round, then counts as the second.
func (s *State) keepFindings() {
	for i := range s.Epoch.Clients {
		if client := &s.Epoch.Clients[i]; client.Lateness == FoundLate {
			client.Lateness = Late
		}
	}
}
