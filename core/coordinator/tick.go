package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/core/bloom"
)

// Tick moves the run to its next RunState if that is due at now (Unix milliseconds), and reports
// whether the state changed. If nothing is due it changes nothing, so a host may call it at any
// time; Due returns when it must be called. draw is a value that no member could know before. Tick
// uses it only when a round starts, mixed with the draws of all earlier rounds. If the state has a
// DrawCommitment, a round starts only with a draw that opens it.
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

// adjustClock sets each time of the state that lies after now to now, and reports whether there was one.
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

// elapsed reports whether a wait of d milliseconds that began at start is over at now. A wait of 0
// milliseconds too is over only when the clock shows a later millisecond.
func elapsed(start, now, d uint64) bool { return now > start && now-start >= d }

// enter begins a RunState at now.
func (s *State) enter(state RunState, now uint64) {
	s.RunState = state
	s.StateStart = now
}

// tickWaitingForMembers begins an epoch when enough clients have been pending for membersTime. That time
// is counted from MinimumSince, which is set by the tick that first sees enough of them, and cleared by
// one that sees too few (waitsAnew).
func (s *State) tickWaitingForMembers(now uint64) bool {
	if s.PendingPause {
		s.pause(now)
		return true
	}
	if !s.enoughWait() {
		if !s.waitsAnew() {
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

// tickWarmup begins the first round of the epoch when all healthy members are ready, or WarmupTime is
// over. With fewer than MinClients healthy members the run goes back to WaitingForMembers instead.
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
	s.ColdStart = false // Epoch.ColdStart has it from here on
	s.startRound(now, draw)
	return true
}

// readyCount returns how many healthy members are ready. When fewer members are ready than are healthy it
// returns 0 without a look at them: its callers ask only whether all are.
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

// tickRoundTrain ends RoundTrain when a quorum of witnesses has proved what it holds, when no quorum can
// come any more, or when MaxRoundTrainTime is over.
func (s *State) tickRoundTrain(now uint64) bool {
	if !s.phase().isOver(now) {
		return false
	}
	s.enter(RoundWitness, now)
	return true
}

// awaited returns the owners whose results witnesses wait for, of the given owners of batches. These are
// the healthy members that are not slow. If every healthy one is slow, it is all healthy ones.
func (s *State) awaited(owners []ClientID) []ClientID {
	awaited := make([]ClientID, 0, len(owners))
	clients, punctual := lookup{clients: s.Epoch.Clients}, false
	for _, id := range owners {
		client := clients.find(id)
		if client == nil || client.State != Healthy {
			continue
		}
		if client.Lateness != Slow && !punctual {
			punctual, awaited = true, awaited[:0]
		}
		if client.Lateness != Slow || !punctual {
			awaited = append(awaited, id)
		}
	}
	return awaited
}

// quorumIsOutOfReach reports whether the running round can have no quorum any more, because too many of
// its elected witnesses left without a proof. A member that left cannot come back into this round, so no
// result of it will ever count, and there is nothing to wait for.
func (s *State) quorumIsOutOfReach() bool {
	round := s.CurrentRound()
	// A round's members stay in the epoch until its end: no more than these have left it.
	if left := len(s.Epoch.Clients) - s.HealthyCount(); int(round.WitnessesElected)-left >= int(round.WitnessesNeeded) {
		return false
	}
	return len(round.Witnesses)+len(s.silentWitnesses()) < int(round.WitnessesNeeded)
}

// noWitnessIsAwaited reports whether RoundWitness waits for no witness any more. It waits for none when
// each elected member that is still healthy has sent its proof. It also waits for none when there is a
// quorum, and each witness that has sent nothing is slow, or has a result of its own that a quorum of the
// witnesses says it does not hold.
func (s *State) noWitnessIsAwaited() bool {
	silent := s.silentWitnesses()
	if len(silent) == 0 {
		return true
	}
	round := s.CurrentRound()
	if !round.HasQuorum() {
		return false
	}
	owners, keys := round.owners(s.Config), bloom.NewKeys(round.Seed)
	for _, w := range silent {
		if w.client.Lateness == Slow {
			continue
		}
		if _, trained := slices.BinarySearch(owners, w.member); !trained || !round.denied(&keys, w.client.ID) {
			return false
		}
	}
	return true
}

// silentWitness is a healthy member that was elected as a witness of the running round and has sent no
// proof.
type silentWitness struct {
	member int // in the round
	client *Client
}

// silentWitnesses returns the elected witnesses of the running round whose proofs can still come.
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

// tickRoundWitness ends the running round when no witness is awaited any more, or RoundWitnessTime is
// over. Then the next round begins, or Cooldown if the epoch ends: it ends with a round that has no quorum,
// and where endsBefore says so. A next round needs a draw that opens the commitment; Cooldown needs none.
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
		s.sealChallenge()
		s.enter(Cooldown, now)
		return true
	}
	if (round.Height+1)%TermRounds == 0 {
		s.forgive()
	}
	s.startRound(now, draw)
	return true
}

// tickCooldown ends the epoch when all healthy members have reported their model, or CooldownTime is over.
// It records the model on which enough of them agree. Then the run is finished if it has made all its steps,
// or paused if that was asked for, or waits for the members of the next epoch.
func (s *State) tickCooldown(now uint64) bool {
	if !s.phase().isOver(now) {
		return false
	}
	s.dropSilent()
	s.settleCheckpoint()
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

// tickPaused ends a pause when the main authority has closed the run or lets it go on. No time ends it.
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

// finish ends the run. It first notes as a lapse which steps the last model has not seen.
func (s *State) finish(now uint64) {
	s.noteLapse()
	s.enter(Finished, now)
}

func (s *State) waitForMembers(now uint64) {
	s.MinimumSince = 0
	s.enter(WaitingForMembers, now)
}

// pause begins a pause. The epoch after it has a cold start: optimizers begin afresh.
func (s *State) pause(now uint64) {
	s.PendingPause = false
	s.ColdStart = true
	s.MinimumSince = 0
	s.enter(Paused, now)
}

// startEpoch gives seats to pending clients, who are the members of the new epoch then, and begins Warmup.
func (s *State) startEpoch(now uint64) {
	// The number of the epoch may be what it was when a client left. An old Join of that client would be
	// accepted again, so its nonce has to be remembered.
	for _, client := range s.Epoch.Exited {
		if !s.IsPending(client.ID) {
			s.depart(client)
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
		client.Waited, client.Report = false, Recorded{}
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
