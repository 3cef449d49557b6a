package check

import (
	"maps"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// Limits of package coordinator, repeated here so that a wrong rule does not change its check.
const (
	mostGrowth  = 8
	idleGrowth  = 2
	fall        = 16
	decline     = 8  // not below the reference level
	widest      = 32 // difference between the highest level that counts and the reference level
	fastest     = 16 // difference between the highest level in a run with audits and the levels of other members
	excusedFrom = 4
	mostExcuses = 2
)

// shares are the levels of present and former members after the last seal, and their excuses in this term.
type shares struct {
	levels  map[coordinator.ClientID]uint8
	excuses map[coordinator.ClientID]int
}

// sharesOf returns the shares of a state.
func sharesOf(s *coordinator.State) shares {
	x := shares{make(map[coordinator.ClientID]uint8), make(map[coordinator.ClientID]int)}
	for _, members := range [][]coordinator.Client{s.Departed, s.Pending, s.Epoch.Clients, s.Epoch.Exited} {
		for _, m := range members {
			x.levels[m.ID], x.excuses[m.ID] = m.Level, int(m.Excuses)
		}
	}
	return x
}

// levelsKept checks at the start of an epoch that former members have their levels, however they left.
func (c *Checker) levelsKept(s *coordinator.State, before stateMark) {
	for _, m := range s.Epoch.Clients {
		former := slices.ContainsFunc(before.waited, func(w coordinator.Client) bool { return w.ID == m.ID && w.ProbationUntil != 0 })
		if known, ok := c.shares.levels[m.ID]; ok && former && m.Level != known {
			c.Violate(SharesRight, "%s joined again with the level %d, but had %d", c.NameOf(m.ID), m.Level, known)
		}
		c.shares.levels[m.ID] = m.Level
	}
}

// reference returns the lowest level that more than a third of the members do not exceed. It counts members without a
// level as the fastest.
func (c *Checker) reference(s *coordinator.State) int {
	for level := 1; level < 255; level++ {
		below := 0
		for _, m := range s.Epoch.Clients {
			if known := int(c.shares.levels[m.ID]); known != 0 && known <= level {
				below++
			}
		}
		if 3*below > len(s.Epoch.Clients) {
			return level
		}
	}
	return 255
}

func (x shares) clone() shares { return shares{maps.Clone(x.levels), maps.Clone(x.excuses)} }

// excused reports whether a round does not wait for a member because of its offer.
func (c *Checker) excused(s *coordinator.State, round *coordinator.Round, i int) bool {
	id := round.Members[i]
	member, ok := s.Member(id)
	offered := ok && int(member.Offer)+excusedFrom < int(round.Levels[i]) && c.shares.excuses[id] < mostExcuses
	return offered || round.Excused.Has(i)
}

// shared checks the levels of a new round, which were fixed when the previous round began, and the levels of
// the round after it. In Cooldown, round is nil.
func (c *Checker) shared(s *coordinator.State, round *coordinator.Round) {
	if !s.Config.SharesBySpeed {
		return
	}
	if round != nil && round.Height > 0 {
		highest := c.highestLevel(round, s.Config)
		for i, id := range round.Members {
			if known, ok := c.shares.levels[id]; ok && int(round.Levels[i]) != min(int(known), highest) {
				c.Violate(SharesRight, "%s has the level %d in step %d, but %d was fixed before, and %d is the highest", c.NameOf(id), round.Levels[i], round.Step, known, highest)
			}
		}
	}
	ended := len(s.Epoch.Rounds) - 1
	if round != nil {
		ended--
	}
	reference := c.reference(s)
	if ended >= 0 {
		c.sealed(s, &s.Epoch.Rounds[ended], reference)
	}
	if round != nil && round.Height%termRounds == 0 {
		clear(c.shares.excuses)
	}
	for _, m := range slices.Concat(s.Epoch.Clients, s.Epoch.Exited) {
		if c.shares.levels[m.ID] == 0 && int(m.Level) > min(int(m.Offer), reference) {
			c.Violate(SharesRight, "%s has the first level %d of %d, but the reference level is %d", c.NameOf(m.ID), m.Level, m.Offer, reference)
		}
		c.shares.levels[m.ID] = m.Level
	}
}

// highestLevel returns the highest level that counts in a round: with audits, at least a third of the
// members, and at least two, are not more than four times slower.
func (c *Checker) highestLevel(round *coordinator.Round, config coordinator.Config) int {
	if config.VerificationPercent == 0 {
		return math.MaxUint8
	}
	highest := math.MaxUint8
	for ; highest > 0; highest-- {
		near := 0
		for _, id := range round.Members {
			if int(c.shares.levels[id])+fastest >= highest {
				near++
			}
		}
		if near >= 2 && 3*near >= len(round.Members) || near == len(round.Members) {
			break
		}
	}
	return highest
}

// sealed checks the change of levels by the results of a round that ended, also for members that left it.
func (c *Checker) sealed(s *coordinator.State, ended *coordinator.Round, reference int) {
	results := resultsOf(ended, s.Config)
	seats := slices.Concat(s.Epoch.Clients, s.Epoch.Exited)
	for i, id := range ended.Members {
		seat := slices.IndexFunc(seats, func(m coordinator.Client) bool { return m.ID == id })
		before := c.shares.levels[id]
		if before == 0 {
			continue
		}
		if seat < 0 {
			c.Violate(SharesRight, "the state has forgotten %s, which had a level in step %d", c.NameOf(id), ended.Step)
			continue
		}
		member, level := &seats[seat], min(int(ended.Levels[i]), reference+widest)
		had, held, denied := results.had[i], results.held[i], results.denied[i]
		if ended.Excused.Has(i) {
			c.shares.excuses[id]++
			if held || !had || int(member.Offer)+excusedFrom >= int(ended.Levels[i]) || c.shares.excuses[id] > mostExcuses {
				c.Violate(SharesRight, "%s is excused in step %d: held %t, level %d, offer %d, %d excuses", c.NameOf(id), ended.Step, held, ended.Levels[i], member.Offer, c.shares.excuses[id])
			}
		}
		lowest, highest := int(before), int(before)
		switch {
		case !results.quorum || results.bad:
		case held:
			highest = max(highest, level+mostGrowth)
		case !had:
			highest += idleGrowth
		case ended.Excused.Has(i) || level == 0:
		case denied:
			lowest = max(1, min(lowest, level-fall))
			highest = lowest
		default:
			lowest = min(lowest, max(level-decline, reference))
			highest = lowest
		}
		lowest = min(lowest, int(member.Offer))
		if now := int(member.Level); now < lowest || now > highest || now > int(member.Offer) {
			c.Violate(SharesRight, "%s has the level %d after step %d, want %d to %d, and at most its offer, %d", c.NameOf(id), now, ended.Step, lowest, highest, member.Offer)
		}
	}
}

// checkVotes checks the votes of a round's results: 16 from one level below the reference level on, otherwise
// less in proportion to the speed, rounded down.
func (c *Checker) checkVotes(round *coordinator.Round, config coordinator.Config, assignments []assign.Assignment) {
	var levels []int
	for _, member := range assign.Trainers(round.BatchSeed, len(round.Members), int(config.VerificationPercent)) {
		levels = append(levels, int(round.Levels[member]))
	}
	slices.Sort(levels)
	for _, a := range assignments {
		want := 16
		if below := levels[len(levels)/3] - int(round.Levels[a.Member]); below > 1 {
			want = max(1, int(16*math.Exp2(-float64(below)/8)))
		}
		if int(a.Vote) != want {
			c.Violate(SharesRight, "%s has a vote of %d in step %d, want %d", c.NameOf(round.Members[a.Member]), a.Vote, round.Step, want)
		}
	}
}

// results are the results of a round by the proofs of its witnesses.
type results struct {
	quorum, bad       bool
	had, held, denied map[int]bool // by member
}

func resultsOf(round *coordinator.Round, config coordinator.Config) results {
	needed := QuorumOf(electedOf(round, config))
	x := results{len(round.Witnesses) >= needed, false, make(map[int]bool), make(map[int]bool), make(map[int]bool)}
	missing := 0
	for _, a := range round.Assignments(config) {
		with := 0
		for k := range round.Witnesses {
			if round.Witnesses[k].Participants.Contains(round.Seed, round.Members[a.Member][:]) {
				with++
			}
		}
		x.had[a.Member], x.held[a.Member], x.denied[a.Member] = true, with >= needed, len(round.Witnesses)-with >= needed
		if x.denied[a.Member] {
			missing++
		}
	}
	x.bad = missing > 1 && 3*missing > len(x.had)
	return x
}
