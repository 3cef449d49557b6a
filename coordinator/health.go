package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/bloom"
)

// Score returns how many of the round's witnesses hold the client's result.
func (r *Round) Score(id ClientID) int {
	keys := bloom.NewKeys(r.Seed)
	return r.score(&keys, id)
}

// score is Score with the keys of the round's filters.
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

// provedMissing reports whether no quorum of witnesses can hold the client's result, even
// if all those that are silent did: silence is evidence against nobody. Otherwise one
// witness that lies and one that is gone could have every member dropped.
func (r *Round) provedMissing(keys *bloom.Keys, id ClientID) bool {
	silent := int(r.WitnessesElected) - len(r.Witnesses)
	return r.HasQuorum() && r.score(keys, id)+silent < int(r.WitnessesNeeded)
}

// Unhealthy returns the members of a finished round that had a batch and whose results
// no quorum of witnesses can hold, whatever those would say that are silent. It is empty
// when the witnesses themselves are fewer than the quorum.
func (r *Round) Unhealthy(c Config) []ClientID {
	if !r.HasQuorum() {
		return nil
	}
	var unhealthy []ClientID
	keys := bloom.NewKeys(r.Seed)
	for _, member := range r.owners(c) {
		if id := r.Members[member]; r.provedMissing(&keys, id) {
			unhealthy = append(unhealthy, id)
		}
	}
	return unhealthy
}

// Accusable returns the healthy members that a HealthCheck about the newest finished
// round, that of step Progress.Step−1, may name now.
func (s *State) Accusable() []ClientID {
	if !s.active() {
		return nil
	}
	round := s.RoundOfStep(s.Progress.Step - 1)
	if round == nil {
		return nil
	}
	return slices.DeleteFunc(round.Unhealthy(s.Config), func(id ClientID) bool { return !s.isHealthy(id) })
}

// healthCheck drops the accused members, each of which must be unhealthy by the
// witnesses of the newest finished round. They leave at the running round's end.
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
	owners, keys := round.owners(s.Config), bloom.NewKeys(round.Seed)
	for i, id := range a.Clients {
		if slices.Contains(a.Clients[:i], id) {
			return ErrInvalidAction
		}
		member, ok := round.MemberIndex(id)
		if !ok {
			return ErrNotMember
		}
		if _, trained := slices.BinarySearch(owners, member); !trained || !round.provedMissing(&keys, id) {
			return ErrFalseAccusation
		}
	}
	dropped := 0
	for _, id := range a.Clients {
		if client, ok := s.Member(id); ok && client.State == Healthy {
			client.State = Dropped
			dropped++
		}
	}
	if dropped == 0 {
		return ErrDuplicate
	}
	return nil
}
