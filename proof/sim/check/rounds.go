package check

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/wire"
)

// seeded checks the two seeds of a new round.
func (c *Checker) seeded(s *coordinator.State, round *coordinator.Round) {
	if want := binary.LittleEndian.Uint64(c.seedChain[8:]); round.BatchSeed != want {
		c.Violate(SeedsRight, "step %d has batch seed %x, but the seed chain requires %x", round.Step, round.BatchSeed, want)
	}
	if s.SeedChain == c.seedChain || round.Seed != binary.LittleEndian.Uint64(s.SeedChain[:]) {
		c.Violate(SeedsRight, "step %d has the witness seed %x, which was known before", round.Step, round.Seed)
	}
	draw := s.DrawCommitment // replaces the commitment that it opened
	if sha256.Sum256(draw[:]) != c.drawn {
		c.Violate(SeedsRight, "step %d began with the draw %x, which does not match the host's commitment", round.Step, draw)
	}
	step := binary.LittleEndian.AppendUint32(nil, round.Step)
	if want := sha256.Sum256(slices.Concat(c.seedChain[:], draw[:], step, c.secrets.revealed[:])); s.SeedChain != want {
		c.Violate(SeedsRight, "step %d has the seed chain %x, but its draw and the members' reveals result in %x", round.Step, s.SeedChain, want)
	}
	c.seedChain, c.drawn = s.SeedChain, draw
}

// revealed checks and records a member's reveal.
func (c *Checker) revealed(from coordinator.ClientID, a coordinator.Ready) {
	if committed := c.secrets.committed[from]; committed != ([32]byte{}) {
		if sha256.Sum256(a.Reveal[:]) != committed {
			c.Violate(SeedsRight, "%s revealed %x, which does not match its commitment", c.NameOf(from), a.Reveal)
		}
		part := sha256.Sum256(slices.Concat([]byte("psyche/reveal/v1"), from[:], a.Reveal[:]))
		for i := range part {
			c.secrets.revealed[i] ^= part[i]
		}
	}
	c.secrets.committed[from] = a.Next
}

// CaughtUp checks a host that has applied all due transitions at a time of its clock: every phase
// that is over has ended. If a phase lasted too long, the host slept too long. Sleeping for up to a
// beat too long is allowed if the clock was set, or if the disk was slow.
func (c *Checker) CaughtUp(s *coordinator.State, now uint64) {
	c.waitsNoLonger(s)
	k := s.Config
	maximum := map[coordinator.RunState]uint64{
		coordinator.Warmup: k.WarmupTime, coordinator.RoundTrain: k.MaxRoundTrainTime,
		coordinator.RoundWitness: k.RoundWitnessTime, coordinator.Cooldown: k.CooldownTime,
	}
	if limit, timed := maximum[s.RunState]; timed && now > s.StateStart && now-s.StateStart >= limit {
		c.Violate(InTime, "%v of step %d began %d ms ago, but its limit is %d ms", s.RunState, s.Progress.Step, now-s.StateStart, limit)
	}
	if round := s.CurrentRound(); s.RunState == coordinator.RoundTrain && len(round.Witnesses) >= QuorumOf(electedOf(round, k)) {
		c.Violate(InTime, "RoundTrain of step %d continues after a quorum of witnesses sent proofs", s.Progress.Step)
	}
	if s.RunState == coordinator.RoundWitness && c.silentWitness(s, s.CurrentRound()) < 0 {
		c.Violate(InTime, "RoundWitness of step %d continues after every elected witness sent its proof", s.Progress.Step)
	}
}

// punctual checks the delay of a phase that ends by time, if nothing delayed the host.
func (c *Checker) punctual(before stateMark, past, limit uint64) {
	const late = 100 // milliseconds; more than a write takes once faults have stopped
	if !c.run.Plan.HasByzantineHost() && c.run.Healed() && c.run.Now() > c.healedAt+scenario.Grace+scenario.Beat && !c.host.Holds() && past > limit+late {
		c.Violate(InTime, "%v of step %d lasted %d ms, want at most %d", before.runState, before.step, past, limit)
	}
}

// outOfReach reports whether the remaining elected witnesses are too few for a quorum, so that
// nothing in the round can count.
func outOfReach(s *coordinator.State, round *coordinator.Round, quorum int) bool {
	possible := len(round.Witnesses)
	for i := range round.Members {
		if IsSilent(s, round, i) {
			possible++
		}
	}
	return possible < quorum
}

// IsSilent reports whether a member was elected as a witness of a round, has not sent its proof,
// and still can.
func IsSilent(s *coordinator.State, round *coordinator.Round, i int) bool {
	voted := slices.ContainsFunc(round.Witnesses, func(w coordinator.Witness) bool { return int(w.Member) == i })
	member, ok := s.Member(round.Members[i])
	return !voted && ok && member.State == coordinator.Healthy &&
		assign.Position(uint32(i), uint32(len(round.Members)), round.Seed, "witness") < uint32(electedOf(round, s.Config))
}

// silentWitness returns a member that RoundWitness must wait for, or -1. Such a member was elected,
// has not sent its proof and still can. With a quorum, the round does not wait for a slow member,
// for a member that offered less than its level and has excuses left, or for a trainer whose own result a
// quorum denies. A member that is not healthy at the end of a
// round has left it before.
func (c *Checker) silentWitness(s *coordinator.State, round *coordinator.Round) int {
	quorum := QuorumOf(electedOf(round, s.Config))
	trains := make(map[int]bool)
	for _, a := range round.Assignments(s.Config) {
		trains[a.Member] = true
	}
	for i, id := range round.Members {
		if !IsSilent(s, round, i) {
			continue
		}
		without := 0
		for k := range round.Witnesses {
			if !round.Witnesses[k].Participants.Contains(round.Seed, id[:]) {
				without++
			}
		}
		if len(round.Witnesses) < quorum || !c.slow[id] && !c.excused(s, round, i) && (!trains[i] || without < quorum) {
			return i
		}
	}
	return -1
}

// Time that witnesses may take beyond two thirds of the trainers, including their proofs: a client
// checks once per heartbeat, and fetches first.
const (
	leastWait = 2 * second
	underWay  = 2*scenario.Heartbeat + second/2

	maxGuesses = 8 // rounds of an epoch
)

func (p *pace) heard(m *cast.Member, a wire.ResultAnnouncement, now int64) {
	id := coordinator.ClientID(m.ID)
	if _, again := p.announced[id]; a.Step == p.step && !again && m.Roles&(scenario.HiddenResult|scenario.InvalidResult|scenario.Equivocation) == 0 {
		p.announced[id] = now
		if m.Honest() {
			p.trained = max(p.trained, now-p.began)
		}
	}
}

// Trained records the duration of an honest client's training, and the number of its sequences.
func (c *Checker) Trained(m *cast.Member, took int64, sequences uint64) {
	c.pace.trained = max(c.pace.trained, took+underWay)
	if c.pace.sequence == nil {
		c.pace.sequence = make(map[coordinator.ClientID]int64)
	}
	id := coordinator.ClientID(m.ID)
	c.pace.sequence[id] = max(c.pace.sequence[id], (took+underWay)/int64(sequences))
}

// longest returns the longest time that an honest member needed or needs: the longest training in the
// epoch, or the time that a member needs for a full batch in proportion to its slowest earlier training.
func (p *pace) longest(round *coordinator.Round, config coordinator.Config) int64 {
	longest := p.trained
	for i, size := range assign.FullBatches(round.Assignments(config), round.Levels[:len(round.Members)]) {
		longest = max(longest, p.sequence[round.Members[i]]*int64(size)/assign.FullBatchUnit)
	}
	return longest
}

// paced checks the end of RoundTrain in runs without faults other than Byzantine members, if the honest
// witnesses are a quorum and the dishonest trainers fewer than a third: the round waited for two thirds of the trainers, but not for the
// last. These two thirds may be the epoch's fastest members, or may have trained ahead. Other trainers
// have 1.25 times the longest time that an honest member needs, from the round's start. In a few
// rounds of an epoch, witnesses wait longer, because they do not know yet how long members need. With a
// lag of two, the needs of members that train ahead may remain unknown.
func (c *Checker) paced(s *coordinator.State, round *coordinator.Round) {
	// With links, the checker does not know when results arrive.
	if c.run.Plan.Links != nil || c.run.Plan.Faults&^(scenario.Byzantine&^scenario.CoalitionHost) != 0 || c.run.Plan.HasByzantineHost() || c.pace.step != round.Step {
		return
	}
	honest := 0
	for _, i := range round.ElectedWitnesses(s.Config) {
		if m := c.run.Cast.Of(round.Members[i]); m.Honest() && c.run.Client(m.Index) != nil && !c.run.HasEnded(m.Index) {
			if member, ok := s.Member(round.Members[i]); ok && member.State == coordinator.Healthy {
				honest++
			}
		}
	}
	if honest < QuorumOf(electedOf(round, s.Config)) {
		return
	}
	var times []int64
	owners, dishonest := make(map[int]bool), 0
	for _, a := range round.Assignments(s.Config) {
		id := round.Members[a.Member]
		if member, ok := s.Member(id); owners[a.Member] || c.slow[id] || !ok || member.State != coordinator.Healthy || c.excused(s, round, a.Member) {
			continue
		}
		owners[a.Member] = true
		if !c.run.Cast.Of(id).Honest() {
			dishonest++
		}
		if at, announced := c.pace.announced[id]; announced {
			times = append(times, at)
		}
	}
	maximum := QuorumOf(len(owners))
	if len(times) < maximum || maximum == 0 || 3*dishonest >= len(owners) {
		return
	}
	slices.Sort(times)
	at := max(times[maximum-1], c.pace.left)
	need := c.pace.longest(round, s.Config)
	limit := func(need int64) int64 {
		return max(at+max(leastWait, (at-c.pace.began)/4), c.pace.began+need+max(leastWait, need/4)) + underWay
	}
	if c.run.Now() > limit(need) {
		c.pace.guesses++
	}
	if c.run.Plan.ApplyLag == 1 && c.pace.guesses > maxGuesses || c.run.Now() > limit(need*8/5) {
		c.Violate(NoPaceSetter, "two thirds of the results of step %d had arrived after %d ms, but RoundTrain lasted %d ms",
			round.Step, (at-c.pace.began)/1_000_000, (c.run.Now()-c.pace.began)/1_000_000)
	}
}
