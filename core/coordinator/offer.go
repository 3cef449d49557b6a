package coordinator

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
)

// Changes of a member's level by one round. A difference of 8 doubles or halves a share.
const (
	levelGrowth     = 8  // after a result that counts, if the member is on time
	levelSlowGrowth = 2  // after a result that counts, if the member is late; or without a batch
	levelFall       = 16 // after a result that a quorum of witnesses denies
	levelDecline    = 8  // after a result that no quorum holds or denies, but only down to the reference level
	LevelExcuse     = 4  // an offer excuses a missing result if it is more than this below the round's level
)

// offer records the speed that a member offers.
func (s *State) offer(from ClientID, a Offer) error {
	switch {
	case s.RunState != Warmup && s.RunState != RoundTrain && s.RunState != RoundWitness:
		return ErrWrongState
	case a.Step != s.Progress.Step:
		return ErrWrongStep
	case !s.isHealthy(from):
		return ErrNotMember
	case !s.Config.SharesBySpeed || a.Level == 0:
		return ErrInvalidAction
	}
	client, _ := s.Member(from)
	if client.Offered || client.Offer == a.Level {
		return ErrDuplicate
	}
	client.Offer, client.Offered = a.Level, true
	return nil
}

// seal changes the levels of members at the end of the newest round, before the next round or Cooldown
// starts. The levels determine the round after the next round: the next round has been fixed since the
// newest round started (NextRound). Members that left the round do not avoid a lower level.
//
// A member offers a level, and results that count raise its level to the offer. The first level is at most
// the reference level of the members, so new keys do not get large shares. A result that a quorum
// denies lowers the level, so a false offer soon loses its share. A result that no quorum holds or denies
// lowers it at most to the reference level. Otherwise a member could send each result to some witnesses
// only, and keep a large share forever. False witnesses can do this to an honest member, which keeps at
// least an equal share. A member that notices early that it is slow, because it offered less than the level of its batch, is excused: the level falls to the
// offer, and no finding of witnesses makes the member late. Excuses are few, so that a member cannot keep its
// share and withhold its results.
//
// If witnesses deny the results of more than a third of the trainers, the whole round was slow or witnesses
// are dishonest, and results change no level.
func (s *State) seal() {
	if !s.Config.SharesBySpeed {
		return
	}
	reference := s.referenceLevel()
	if n := len(s.Epoch.Rounds); n > 0 && s.Epoch.Rounds[n-1].HasQuorum() {
		s.judge(&s.Epoch.Rounds[n-1], reference)
	}
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range clients {
			client := &clients[i]
			client.Offered = false
			if client.Level == 0 {
				client.Level = reference
			}
			client.Level = min(client.Level, client.Offer)
		}
	}
}

// referenceLevel returns the reference level of the members. Members without a level count as the fastest. Otherwise a
// few members with the lowest offers could lower it before most members have a level.
func (s *State) referenceLevel() uint8 {
	levels := make([]uint8, 0, len(s.Epoch.Clients))
	for i := range s.Epoch.Clients {
		level := s.Epoch.Clients[i].Level
		if level == 0 {
			level = math.MaxUint8
		}
		levels = append(levels, level)
	}
	if len(levels) == 0 {
		return math.MaxUint8
	}
	return assign.Reference(levels)
}

// judge changes the levels of a round's members by the results of the round, and records which members
// are excused. A level counts only up to the highest share: otherwise a level far above the reference level
// could fall several times before the share becomes smaller.
func (s *State) judge(round *Round, reference uint8) {
	outcomes, bad := round.outcomes(s.Config)
	highest := min(int(reference)+assign.ShareRange, math.MaxUint8)
	members, exited := lookup{clients: s.Epoch.Clients}, lookup{clients: s.Epoch.Exited}
	for member, id := range round.Members {
		client, outcome := members.find(id), outcomes[member]
		if client == nil {
			client = exited.find(id)
		}
		if client == nil || client.Level == 0 || round.Levels[member] == 0 {
			continue // before the first seal, the size of a batch does not follow the speed
		}
		level := min(round.Levels[member], uint8(highest))
		switch {
		case outcome > resultCounts && client.isExcused(round.Levels[member]):
			client.Excuses++
			round.Excused.add(member)
		case bad:
		case outcome == resultDenied:
			client.Level = min(client.Level, max(level, levelFall+1)-levelFall)
		case outcome == resultUnproven:
			client.Level = min(client.Level, uint8(max(int(level)-levelDecline, int(reference))))
		case outcome == resultCounts && client.Lateness == OnTime:
			client.raise(level, levelGrowth)
		case outcome == resultCounts:
			client.raise(level, levelSlowGrowth)
		case outcome == noBatch:
			client.raise(client.Level, levelSlowGrowth)
		}
	}
}

// raise raises a level to at most growth levels above a level at which the member succeeded.
func (c *Client) raise(level uint8, growth int) {
	c.Level = max(c.Level, uint8(min(int(level)+growth, int(c.Offer))))
}

// isExcused reports whether the member of a round with this level may lack a result: it offered less, and
// has excuses left.
func (c *Client) isExcused(level uint8) bool {
	return int(c.Offer)+LevelExcuse < int(level) && c.Excuses < MaxExcuses
}

// Awaits reports whether the running round waits for the result of a healthy member, if it waits for any.
func (s *State) Awaits(c *Client) bool {
	if round := s.CurrentRound(); round != nil && s.Config.SharesBySpeed {
		if member, ok := round.MemberIndex(c.ID); ok {
			return round.awaits(member, c)
		}
	}
	return c.Lateness != Slow
}

// awaits reports whether the round waits for the result and the proof of a healthy member.
func (r *Round) awaits(member int, c *Client) bool {
	return c.Lateness != Slow && !c.isExcused(r.Levels[member])
}

// outcome is the state of a member's result at the end of a round with a quorum of witnesses.
type outcome uint8

const (
	noBatch        outcome = iota
	resultCounts           // a quorum holds it
	resultUnproven         // neither
	resultDenied           // a quorum denies it
)

// outcomes returns the outcome of each member. bad reports whether a quorum denies the results of more than
// a third of the trainers, and of more than one.
func (r *Round) outcomes(c Config) (outcomes []outcome, bad bool) {
	outcomes = slices.Repeat([]outcome{noBatch}, len(r.Members))
	owners, keys, denied := r.Owners(c), bloom.NewKeys(r.Seed), 0
	for _, member := range owners {
		score := r.score(&keys, r.Members[member])
		switch {
		case score >= int(r.WitnessesNeeded):
			outcomes[member] = resultCounts
		case len(r.Witnesses)-score >= int(r.WitnessesNeeded):
			outcomes[member] = resultDenied
			denied++
		default:
			outcomes[member] = resultUnproven
		}
	}
	return outcomes, 3*denied > max(3, len(owners))
}
