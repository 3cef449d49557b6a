// Package check contains the assertions about a simulated run and checks them at every step. It
// keeps independent records, and shares no rules with the code that it checks.
package check

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/disk"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/follow"
)

// slack is the time that a run may take after faults have stopped, in virtual seconds: the rest of
// the current phase, in addition to the maximum durations of rounds and epochs.
const slack = 120 * second

// Begins records the starting state of a run.
func (c *Checker) Begins(s *coordinator.State) {
	c.drawn, c.secrets = s.DrawCommitment, secretsOf(s)
	c.accounts(s)
}

// Accepted checks an action that the host has accepted.
func (c *Checker) Accepted(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) {
	name := disk.Signature{From: from, Nonce: nonce}
	if c.actions[name] {
		c.Violate(NotReplayed, "%s of %s with nonce %d", Describe(a), c.NameOf(from), nonce)
	}
	c.actions[name] = true
	c.promised(name, a)
	switch a.(type) {
	case coordinator.Withdraw, coordinator.Vote, coordinator.Equivocation, coordinator.Offer:
		c.pace.left = c.run.Now()
	}
	switch a := a.(type) {
	case coordinator.Join:
		c.secrets.committed[from] = a.Commitment
		c.admitted[from] = true
		c.joins(s, from)
	case coordinator.Equivocation:
		c.proved(s, a)
	case coordinator.Ready:
		c.revealed(from, a)
	case coordinator.WitnessRound:
		c.witnessed(s, from)
		c.reveals(s, from, a)
		c.claims(s, from, a)
	case coordinator.HealthCheck:
		c.accused(s, a)
	case coordinator.ReportCheckpoint:
		c.reported(s, from, a)
	case coordinator.Return:
		c.returned(s, from)
		delete(c.reports.holds, from)
		if member, ok := s.Member(from); ok { // the commitment of its seat counts, not the commitment as a pending client
			c.secrets.committed[from] = member.Commitment
		}
	}
	c.courtAction(s, from, a)
}

// witnessed checks that an accepted witness was elected, by its position in the shuffle, and that
// it is listed once.
func (c *Checker) witnessed(s *coordinator.State, from coordinator.ClientID) {
	round := s.CurrentRound()
	if round == nil {
		c.Violate(OnlyElected, "a witness proof was accepted outside of rounds")
		return
	}
	if c.votedStep != round.Step {
		c.votedStep, c.voted = round.Step, nil
	}
	member := slices.Index(round.Members, from)
	elected := member >= 0 && assign.Position(uint32(member), uint32(len(round.Members)), round.Seed, "witness") < uint32(electedOf(round, s.Config))
	if !elected || slices.Contains(c.voted, from) {
		c.Violate(OnlyElected, "%s sent a witness proof in step %d (elected: %v), want one from each elected witness", c.NameOf(from), round.Step, elected)
	}
	c.voted = append(c.voted, from)
}

// accused checks that dropped members are missing from the witnesses' proofs.
func (c *Checker) accused(s *coordinator.State, a coordinator.HealthCheck) {
	round := s.RoundOfStep(a.Step)
	if round == nil || a.Step != s.Progress.Step-1 {
		c.Violate(NotFramed, "a health check of step %d in step %d", a.Step, s.Progress.Step)
		return
	}
	quorum := QuorumOf(electedOf(round, s.Config))
	for _, id := range a.Clients {
		if member, ok := round.MemberIndex(id); ok && round.Excused.Has(member) {
			c.Violate(NotFramed, "%s was found late in step %d, but it is excused", c.NameOf(id), a.Step)
		}
		held := 0
		for i := range round.Witnesses {
			if round.Witnesses[i].Participants.Contains(round.Seed, id[:]) {
				held++
			}
		}
		silent := electedOf(round, s.Config) - len(round.Witnesses)
		if held+silent >= quorum || len(round.Witnesses) < quorum {
			c.Violate(NotFramed, "%s in step %d: %d of %d witnesses hold its result, quorum %d",
				c.NameOf(id), a.Step, held, len(round.Witnesses), quorum)
		}
		c.judged(s, a.Step, id, len(round.Witnesses)-held >= quorum)
	}
	c.mostJudged(s)
}

// Ticked checks the effect of a tick.
func (c *Checker) Ticked(s *coordinator.State, before stateMark, now uint64) {
	c.courtsTick(now)
	if s.RunState == before.runState {
		return
	}
	if err := s.Check(); err != nil {
		c.Violate(Invariants, "%v → %v: %v", before.runState, s.RunState, err)
		return
	}
	c.accounts(s)
	past := uint64(0)
	if now > before.start {
		past = now - before.start
	}
	switch before.runState {
	case coordinator.Warmup:
		c.punctual(before, past, s.Config.WarmupTime)
	case coordinator.RoundTrain:
		c.punctual(before, past, s.Config.MaxRoundTrainTime)
		c.roundTrained(s, past)
		c.paced(s, s.CurrentRound())
	case coordinator.RoundWitness:
		c.punctual(before, past, s.Config.RoundWitnessTime)
		if silent := c.silentWitness(s, s.RoundOfStep(before.step)); past < s.Config.RoundWitnessTime && silent >= 0 {
			c.Violate(QuorumOrTime, "RoundWitness of step %d ended after %d ms, before the elected member %d sent its proof", before.step, past, silent)
		}
		c.roundOver(s, before)
		c.challenged(s, before.step)
		c.blameless(s, before)
		c.learned(s, before.step)
		c.courtsOver(s.Config, before, now)
	case coordinator.Cooldown:
		c.punctual(before, past, s.Config.CooldownTime)
		c.epochOver(s, before)
		c.heldOut(s)
	}
	switch s.RunState {
	case coordinator.RoundTrain:
		c.roundBegins(s, before)
	case coordinator.Cooldown:
		c.shared(s, nil)
	}
	if s.RunState == coordinator.Warmup {
		c.seated(s, before)
		c.heldOut(s)
		c.fellBack(s, before)
		c.epochBegins(s)
		c.courtsBegin(s)
		c.levelsKept(s, before)
	}
	c.ejections(s)
	if s.RunState == coordinator.Finished && s.Progress.Step != s.Config.TotalSteps+1 {
		c.Violate(QuorumOrTime, "the run finished in step %d of %d", s.Progress.Step, s.Config.TotalSteps)
	}
}

// roundTrained checks the end of RoundTrain.
func (c *Checker) roundTrained(s *coordinator.State, past uint64) {
	if past >= s.Config.MaxRoundTrainTime {
		return
	}
	round := s.CurrentRound()
	quorum := QuorumOf(electedOf(round, s.Config))
	if len(round.Witnesses) < quorum && !outOfReach(s, round, quorum) {
		c.Violate(QuorumOrTime, "RoundTrain of step %d ended after %d ms with %d witnesses, quorum %d",
			round.Step, past, len(round.Witnesses), quorum)
	}
}

// roundBegins checks data and step of a new round.
func (c *Checker) roundBegins(s *coordinator.State, before stateMark) {
	round := s.CurrentRound()
	if round.Step != c.nextStep {
		c.Violate(DataContinuous, "step %d follows step %d", round.Step, c.nextStep-1)
	}
	if round.Position != c.nextData || round.BatchSize != s.Config.BatchSize(round.DataIndex, scenario.SeqLen) {
		c.Violate(DataContinuous, "step %d begins at position %d with %d sequences, want a start at %d", round.Step, round.Position, round.BatchSize, c.nextData)
	}
	at, assignments := c.nextData, round.Assignments(s.Config)
	for _, a := range assignments {
		if a.Batch.Start != at || a.Batch.End <= at {
			c.Violate(DataContinuous, "step %d: batch %v does not begin at sequence %d", round.Step, a.Batch, at)
		}
		at = a.Batch.End
	}
	if at != c.nextData+uint64(round.BatchSize) {
		c.Violate(DataContinuous, "step %d: batches end at sequence %d, want %d", round.Step, at, c.nextData+uint64(round.BatchSize))
	}
	c.nextData, c.nextStep = at, round.Step+1
	c.pace = pace{
		step: round.Step, began: c.run.Now(), announced: make(map[coordinator.ClientID]int64),
		trained: c.pace.trained, sequence: c.pace.sequence, guesses: c.pace.guesses,
	}
	c.seeded(s, round)
	c.skips(s, round)
	c.juriesDrawn(round)
	c.seatsKept(s, round)
	c.inTerm(s, round)
	c.shared(s, round)
	if before.runState == coordinator.Warmup {
		c.pace.trained, c.pace.sequence, c.pace.guesses = 0, nil, 0
		c.chain.begin(s)
	}
}

// roundOver records a round whose witnesses have all sent proofs.
func (c *Checker) roundOver(s *coordinator.State, before stateMark) {
	round := s.RoundOfStep(before.step)
	quorum := QuorumOf(electedOf(round, s.Config))
	if s.RunState == coordinator.RoundTrain && len(round.Witnesses) < quorum {
		c.Violate(QuorumOrTime, "the epoch continued after step %d with %d witnesses, want a quorum of %d", round.Step, len(round.Witnesses), quorum)
	}
	if there := presentOf(s); s.RunState == coordinator.RoundTrain && 3*there < s.Seats() {
		c.Violate(CommitKept, "the epoch continues in step %d with %d of its %d first members, too few to record a checkpoint", s.Progress.Step, there, s.Seats())
	}
	c.chain.extend(round, s.Config)
}

// presentOf returns the number of the first members that are present in a starting round, or were
// present in one of the four rounds before it.
func presentOf(s *coordinator.State) int {
	there := len(s.Epoch.Clients)
	for i := range s.Epoch.Exited {
		if height := s.CurrentRound().Height; height <= 4 || s.Epoch.Exited[i].ExitedHeight >= height-4 {
			there++
		}
	}
	return there
}

// Loaded records that a client starts again with a loaded model.
func (c *Checker) Loaded(m *cast.Member) { c.applying[m.Index] = 0 }

// Applied checks the results that an honest client has just applied to its model, and the resulting
// weights.
func (c *Checker) Applied(p Client, step uint32, payloads [][]byte, again *assign.BatchID, weights *model.Model) {
	c.run.Note('P', uint64(p.Member().Index), uint64(step), func() string {
		return fmt.Sprintf("%s applies step %d: %d results", p.Member().Name(), step, len(payloads))
	})
	if !p.Member().Honest() {
		return
	}
	c.applying[p.Member().Index] = step
	if again != nil {
		c.Violate(OnceOnly, "%s applies batch %v in step %d", p.Member().Name(), *again, step)
	}
	c.chain.compare(p.Member(), step, payloads, weights)
}

// Stepped compares the replica hash of an honest client that has just applied a step.
func (c *Checker) Stepped(p Client) {
	hash, step, ok := p.Replica()
	applied := &c.applying[p.Member().Index]
	if !ok || *applied == 0 || step != *applied || !p.Member().Honest() {
		return
	}
	*applied = 0
	first, known := c.replicas[step]
	if !known {
		c.replicas[step] = hash
	} else if first != hash {
		ours, theirs := hash, first // copies, so that memory is allocated only in this case
		c.Violate(SameReplica, "%s has %x after step %d, another honest client has %x", p.Member().Name(), ours[:4], step, theirs[:4])
	}
}

// Ended checks a client that has left the run.
func (c *Checker) Ended(p Client, err error) {
	var fault *follow.HostFault
	switch finished := c.host.Base().RunState == coordinator.Finished; {
	case !p.Member().Honest():
	case errors.As(err, &fault):
		c.deceived(p, fault)
	case err != nil:
		c.Violate(NodeSound, "%s: %v", p.Member().Name(), err)
	case !finished:
		c.Violate(NodeSound, "%s ended before the run", p.Member().Name())
	}
	for _, m := range c.run.Cast.Members {
		if m.Honest() && !c.run.HasEnded(m.Index) {
			return
		}
	}
	c.run.End()
}

// Crashed computes the state that a restarting host must find: the durable state and all completely
// written records.
func (c *Checker) Crashed(base *coordinator.State, d *disk.Disk, there int) {
	expected := base.Clone()
	c.lostActions = nil
	length := 0
	for _, payload := range d.Records {
		length += entryOverhead + len(payload)
		r, err := disk.DecodeRecord(payload)
		if err == nil && length <= there {
			err = c.run.Redo(&expected, r)
		} else if r.Kind == follow.KindAction {
			c.lostActions = append(c.lostActions, disk.Signature{From: coordinator.ClientID(r.Action.From), Nonce: r.Action.Nonce})
		}
		if err != nil {
			c.Violate(ReplayEqual, "%v", err)
		}
	}
	if length != len(d.Writing) {
		c.Violate(ReplayEqual, "%d bytes were written, want the %d bytes of the records", len(d.Writing), length)
	}
	c.expectation = &expected
}

// entryOverhead is the journal's overhead per record: length, previous hash, check, hash.
const entryOverhead = 4 + 32 + 4 + 32

// Replayed checks the state that a restarting host has found.
func (c *Checker) Replayed(log *follow.Follower, actions []disk.Signature, err error) {
	if err != nil {
		c.Violate(ReplayEqual, "%v", err)
		return
	}
	s := &log.State
	c.survived(log.Head().Index)
	if c.expectation != nil && s.Hash() != c.expectation.Hash() {
		c.Violate(ReplayEqual, "the replayed state is %v of step %d, want %v of step %d",
			s.RunState, s.Progress.Step, c.expectation.RunState, c.expectation.Progress.Step)
	}
	c.expectation = nil
	for _, name := range c.lostActions {
		delete(c.actions, name)
	}
	found := make(map[disk.Signature]bool, len(actions))
	for _, name := range actions {
		found[name] = true
	}
	for _, m := range c.run.Cast.Members { // in an order that does not depend on the map
		c.lost(coordinator.ClientID(m.ID), found)
	}
	c.rewind(s)
}

// lost looks for acknowledged actions of a client that are not in the journal.
func (c *Checker) lost(id coordinator.ClientID, found map[disk.Signature]bool) {
	minimum := uint64(0)
	for name := range c.acked {
		if name.From == id && !found[name] && (minimum == 0 || name.Nonce < minimum) {
			minimum = name.Nonce
		}
	}
	if minimum != 0 {
		c.Violate(NothingLost, "the journal does not contain the action of %s with nonce %d", c.NameOf(id), minimum)
	}
}

// rewind reverts the Checker's records of a state that was never published.
func (c *Checker) rewind(s *coordinator.State) {
	c.nextData, c.nextStep, c.seedChain = s.Position, s.Progress.Step, s.SeedChain
	c.drawn, c.secrets = s.DrawCommitment, secretsOf(s)
	c.rewindFindings(s)
	c.rewindBooks(s)
	c.rewindSeats(s)
	c.rewindEjections(s)
	clear(c.joined)
	c.pace, c.courts, c.challenges = pace{}, courtsOf(s), challengesOf(s)
	c.reports, c.shares = reportsOf(s), sharesOf(s)
	switch s.RunState {
	case coordinator.RoundTrain, coordinator.RoundWitness:
		c.nextStep++
	}
	c.voted = nil
	c.votedStep = 0
	if round := s.CurrentRound(); round != nil {
		c.votedStep = round.Step
		for _, w := range round.Witnesses {
			c.voted = append(c.voted, round.Members[w.Member])
		}
	}
}

// Healed records the end of faults.
func (c *Checker) Healed() {
	c.healedAt = c.run.Now()
	c.healedStep = c.host.State().Progress.Step
}

// Deadline returns the latest time for the end of the run.
func (c *Checker) Deadline() int64 {
	if !c.run.Healed() {
		return 1 << 62
	}
	k := c.run.Plan.Config
	rounds := int64(k.TotalSteps) + 1 - int64(c.healedStep)
	round := int64(k.MaxRoundTrainTime + k.RoundWitnessTime + 2000)
	awaited := uint64(k.TotalSteps) * k.MaxRoundTrainTime / 16 // if the model is lost
	epoch := int64(k.WarmupTime+k.CooldownTime+k.WaitingForMembersExtraTime+awaited) + 20_000
	return c.healedAt + slack + max(rounds, 1)*(round+epoch)*second/1000
}

// TooLate is called if the run is not over in time.
func (c *Checker) TooLate() {
	if c.run.Plan.HasByzantineHost() {
		return // a Byzantine host can stop its run
	}
	s := c.host.State()
	if s.RunState == coordinator.WaitingForMembers && c.run.Plan.Clients-len(s.Authority.Ejections) < int(s.Config.InitMinClients) {
		return // the run waits for members that were rightly ejected
	}
	waiting := ""
	for _, m := range c.run.Cast.Members {
		if m.Honest() && !c.run.HasEnded(m.Index) {
			waiting += " " + strconv.Itoa(m.Index)
		}
	}
	c.Violate(Progress, "faults stopped at %.0f s in step %d; the run is in %v of step %d of %d; clients that have not ended:%s",
		float64(c.healedAt)/float64(second), c.healedStep, s.RunState, s.Progress.Step, s.Config.TotalSteps, waiting)
}

// replays checks that replaying the journal gives the host's state.
func (c *Checker) replays() {
	if h := c.host; h.Idle() {
		log, actions, err := h.Replay()
		c.expectation = h.Base()
		c.Replayed(log, actions, err)
	}
}

// Finish checks the end of a run.
func (c *Checker) Finish() {
	h := c.host.State()
	if c.run.Plan.HasByzantineHost() {
		c.replays()
		return
	}
	if h.RunState != coordinator.Finished {
		c.TooLate()
		return
	}
	c.replays()
	checkpoint := h.Model.Checkpoint
	if checkpoint.Step != h.Config.TotalSteps {
		if c.outvoted {
			return
		}
		c.Violate(Progress, "the last checkpoint has step %d, want %d", checkpoint.Step, h.Config.TotalSteps)
	}
	for _, m := range c.run.Cast.Members {
		if !m.Honest() {
			continue
		}
		digest, step, ok := c.run.Client(m.Index).Model()
		if !c.admitted[coordinator.ClientID(m.ID)] {
			continue // it started when the run was almost over, or full, so that members shared nothing with it
		}
		if !ok || step != checkpoint.Step || digest != checkpoint.Digest {
			c.Violate(Progress, "%s does not hold the final model, but the model of step %d", m.Name(), step)
		}
	}
}
