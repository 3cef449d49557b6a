package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/core/bloom"
)

// Tick moves the run to its next RunState if that is due at now (Unix milliseconds), and reports
// whether the state changed. If nothing is due it changes nothing, so a host may call it at any
// time. Due returns the time of the next necessary call. draw is a value that no member could know
// before. Tick uses draw only when a round starts, mixed with the draws of all earlier rounds. If
// the state has a DrawCommitment, a round starts only with a draw that opens it.
//
// If the clock was set back, Tick sets times of the state that lie in the future to now, so that
// the run does not wait for the clock to reach them again.
func (s *State) Tick(now uint64, draw [32]byte) (changed bool) {
	adjusted := s.adjustClock(now)
	var moved bool
	switch s.RunState {
	case WaitingForMembers:
		moved = s.tickWaitingForMembers(now)
	case Warmup:
		moved = s.tickWarmup(now, draw)
	case RoundTrain:
		moved = s.tickRoundTrain(now)
	case RoundWitness:
		moved = s.tickRoundWitness(now, draw)
	case Cooldown:
		moved = s.tickCooldown(now)
	case Paused:
		moved = s.tickPaused(now)
	case Uninitialized, Finished:
		return false
	}
	return adjusted || moved
}

// adjustClock sets each time of the state that is after now to now, and reports whether it changed
// any.
func (s *State) adjustClock(now uint64) (changed bool) {
	if s.RunState == Uninitialized || s.RunState == Finished {
		return false
	}
	times := []*uint64{&s.StateStart, &s.MinimumSince, &s.Epoch.StartTime}
	for i := range s.Trials {
		times = append(times, &s.Trials[i].SinceTime)
	}
	for _, t := range times {
		if *t > now {
			*t = now
			changed = true
		}
	}
	return changed
}

// elapsed reports whether a wait of d milliseconds that started at start is over at now. Even a
// wait of 0 milliseconds is over only when the clock shows a later millisecond.
func elapsed(start, now, d uint64) bool { return now > start && now-start >= d }

// enter starts a RunState at now.
func (s *State) enter(state RunState, now uint64) {
	s.RunState = state
	s.StateStart = now
}

// tickWaitingForMembers starts an epoch when enough clients have been pending for membersTime,
// counted from MinimumSince. The first tick with enough pending clients sets MinimumSince, and a
// tick with too few clears it (waitsAgain).
func (s *State) tickWaitingForMembers(now uint64) bool {
	if s.PendingPause {
		s.pause(now)
		return true
	}
	if !s.enoughWait() {
		if !s.waitsAgain() {
			return false
		}
		s.MinimumSince = 0
		return true
	}
	if s.MinimumSince == 0 {
		s.MinimumSince = now
		return now != 0
	}
	if !elapsed(s.MinimumSince, now, s.membersTime()) {
		return false
	}
	s.startEpoch(now)
	return true
}

// tickWarmup starts the first round of the epoch when all healthy members are ready, or WarmupTime
// is over. With fewer than MinClients healthy members the run returns to WaitingForMembers instead.
func (s *State) tickWarmup(now uint64, draw [32]byte) bool {
	if s.PendingPause {
		s.membersToPending()
		s.pause(now)
		return true
	}
	changed := s.removeLeavers(0)
	if s.HealthyCount() < int(s.Config.MinClients) {
		s.membersToPending()
		s.waitForMembers(now)
		return true
	}
	if !s.phase().isOver(now) || !s.opens(draw) {
		return changed
	}
	if len(s.Epoch.Ready) == 0 {
		s.countTry()
	}
	holders := newIDSet(s.Epoch.Ready)
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		client.HoldsModel = holders.has(client.ID)
	}
	s.ColdStart = false // Epoch.ColdStart has it from now on
	s.startRound(now, draw)
	return true
}

// readyCount returns how many healthy members are ready. Its callers only need to know whether all
// are ready, so if Ready has fewer entries than there are healthy members, it returns 0 without
// counting.
func (s *State) readyCount() int {
	count := 0
	if len(s.Epoch.Ready) < s.HealthyCount() {
		return count
	}
	ready := newIDSet(s.Epoch.Ready)
	for i := range s.Epoch.Clients {
		if client := &s.Epoch.Clients[i]; client.State == Healthy && ready.has(client.ID) {
			count++
		}
	}
	return count
}

// tickRoundTrain ends RoundTrain when a quorum of witnesses has sent proofs, when a quorum cannot
// come any more, or when MaxRoundTrainTime is over.
func (s *State) tickRoundTrain(now uint64) bool {
	if !s.phase().isOver(now) {
		return false
	}
	s.enter(RoundWitness, now)
	return true
}

// quorumIsOutOfReach reports whether the running round cannot have a quorum any more, because too
// many of its elected witnesses left without a proof. A member that left cannot return to this
// round, so none of its results will count, and there is nothing to wait for.
func (s *State) quorumIsOutOfReach() bool {
	round := s.CurrentRound()
	// A round's members stay in the epoch until its end, so at most this many have left the round.
	if left := len(s.Epoch.Clients) - s.HealthyCount(); int(round.WitnessesElected)-left >= int(round.WitnessesNeeded) {
		return false
	}
	return len(round.Witnesses)+len(s.silentWitnesses()) < int(round.WitnessesNeeded)
}

// noWitnessIsAwaited reports whether RoundWitness no longer waits for a witness, for one of two
// reasons: Each elected member that is still healthy has sent its proof. Or there is a quorum, and
// each silent witness is slow or excused, or has a result that a quorum of the witnesses denies.
func (s *State) noWitnessIsAwaited() bool {
	silent := s.silentWitnesses()
	if len(silent) == 0 {
		return true
	}
	round := s.CurrentRound()
	if !round.HasQuorum() {
		return false
	}
	owners, keys := round.Owners(s.Config), bloom.NewKeys(round.Seed)
	for _, w := range silent {
		if !round.awaits(w.member, w.client) {
			continue
		}
		if _, trained := slices.BinarySearch(owners, w.member); !trained || !round.denied(&keys, w.client.ID) {
			return false
		}
	}
	return true
}

// silentWitness is a healthy member that was elected as a witness of the running round and has not
// sent a proof.
type silentWitness struct {
	member int // index in the round
	client *Client
}

// silentWitnesses returns the elected witnesses of the running round whose proofs may still come.
func (s *State) silentWitnesses() (healthy []silentWitness) {
	round := s.CurrentRound()
	if len(round.Witnesses) == int(round.WitnessesElected) {
		return nil
	}
	var silent MemberSet
	if int(round.WitnessesElected) == len(round.Members) { // all are elected: no shuffle is needed
		for member := range round.Members {
			silent.add(member)
		}
	} else {
		silent = round.electedSet(s.Config)
	}
	for i := range round.Witnesses {
		silent.remove(int(round.Witnesses[i].Member))
	}
	clients := lookup{clients: s.Epoch.Clients}
	for member, id := range round.Members {
		if !silent.Has(member) {
			continue
		}
		if client := clients.find(id); client != nil && client.State == Healthy {
			healthy = append(healthy, silentWitness{member, client})
		}
	}
	return healthy
}

// tickRoundWitness ends the running round when it no longer waits for a witness, or when
// RoundWitnessTime is over. Then the next round starts. If the epoch ends, because the round has no
// quorum or because endsBefore reports it, Cooldown starts instead. A next round needs a draw that
// opens the commitment; Cooldown does not.
func (s *State) tickRoundWitness(now uint64, draw [32]byte) bool {
	round := s.CurrentRound()
	ends := !round.HasQuorum() || s.endsBefore(s.Progress.Step+1)
	if !s.phase().isOver(now) || !ends && !s.opens(draw) {
		return false
	}
	s.endTrials(now)
	s.removeLeavers(round.Height)
	s.keepFindings()
	s.Progress.Step++
	if s.Config.EpochTime != 0 && s.Epoch.LastStep == 0 && elapsed(s.Epoch.StartTime, now, s.Config.EpochTime) {
		s.Epoch.LastStep = s.Progress.Step + 1 // the epoch has two more rounds
	}
	if ends {
		s.requeue()
		s.seal()
		s.sealChallenge()
		s.enter(Cooldown, now)
		return true
	}
	s.startRound(now, draw)
	if s.CurrentRound().Height%TermRounds == 0 {
		s.forgive()
	}
	return true
}

// tickCooldown ends the epoch when all healthy members have reported their model, or CooldownTime is
// over. It records the model that enough of them agree on. Then the run is finished if it has done
// all its steps, paused if that was requested, and otherwise waits for the members of the next
// epoch.
func (s *State) tickCooldown(now uint64) bool {
	if !s.phase().isOver(now) {
		return false
	}
	s.dropSilent()
	s.finalizeCheckpoint()
	s.removeLeavers(s.CurrentRound().Height)
	s.Progress.Epoch++
	s.forgetAllDeparted()
	s.forgetEjections()
	if s.Progress.Step > s.Config.TotalSteps {
		s.PendingPause = false
		s.finish(now)
		return true
	}
	s.membersToPending()
	if s.PendingPause {
		s.pause(now)
	} else {
		s.waitForMembers(now)
	}
	return true
}

// tickPaused ends a pause when the main authority has closed or resumed the run. No time ends it.
func (s *State) tickPaused(now uint64) bool {
	if s.Closed {
		s.finish(now)
		return true
	}
	if !s.PendingResume {
		return false
	}
	s.PendingResume = false
	s.waitForMembers(now)
	return true
}

// finish ends the run. Before that, it records the steps that the last model lacks as a rollback gap.
func (s *State) finish(now uint64) {
	s.noteLapse()
	s.enter(Finished, now)
}

func (s *State) waitForMembers(now uint64) {
	s.MinimumSince = 0
	s.enter(WaitingForMembers, now)
}

// pause starts a pause. The epoch after it has a cold start with fresh optimizers.
func (s *State) pause(now uint64) {
	s.PendingPause = false
	s.ColdStart = true
	s.MinimumSince = 0
	s.enter(Paused, now)
}

// startEpoch gives seats to pending clients, which become the members of the new epoch, and starts
// Warmup.
func (s *State) startEpoch(now uint64) {
	// The epoch may have the same number as when a client left. An old Join of that client would
	// then be accepted again, so its nonce has to be kept.
	for _, client := range s.Epoch.Exited {
		if i := indexOf(s.Pending, client.ID); i < 0 {
			s.depart(client)
		} else { // the end of a round may have changed its level after its Join
			s.Pending[i].Offer, s.Pending[i].Level = client.Offer, client.Level
		}
	}
	members := s.seatPending()
	s.fallBackIfModelIsGone(members)
	s.noteLapse()
	for i := range members {
		client := &members[i]
		if s.ColdStart || client.OptimizerSince == 0 {
			client.OptimizerSince = s.Progress.Step
		}
		if client.isNew() {
			client.ProbationUntil = s.probationEnd()
		}
		client.Waited = false
		client.keepClaim(s.Model.Checkpoint)
	}
	s.Epoch = Epoch{
		StartStep: s.Progress.Step,
		StartTime: now,
		ColdStart: s.ColdStart,
		Clients:   members,
	}
	s.MinimumSince = 0
	s.enter(Warmup, now)
}
