package coordinator

import "slices"

// Due returns the earliest time, now or later, at which a Tick changes the state if no action is
// applied before. ok is false if only an action can change the state. A host may sleep until that
// time, because an earlier Tick changes nothing. It must call Due again after every action, and
// after its clock was set back, because the time may then be earlier.
func (s *State) Due(now uint64) (at uint64, ok bool) {
	switch {
	case s.RunState == Uninitialized || s.RunState == Finished:
		return 0, false
	case s.isAhead(now):
		return now, true
	}
	phase := s.phase()
	switch {
	case phase.over:
		return now, true
	case phase.endless:
		return 0, false
	case phase.unnoticed:
		return max(now, 1), true // 0 means no time
	}
	at = phase.since + max(phase.most, 1)
	return max(now, at), at > phase.since // on overflow, the clock never reaches the sum
}

// isAhead reports whether some time in the state is later than now, which happens when the clock was
// set back. The next Tick corrects these times (adjustClock).
func (s *State) isAhead(now uint64) bool {
	return s.StateStart > now || s.MinimumSince > now || s.Epoch.StartTime > now ||
		slices.ContainsFunc(s.Trials, func(t Trial) bool { return t.SinceTime > now })
}

// phase describes when the running phase ends.
type phase struct {
	over      bool   // nothing is left to wait for: the next tick ends the phase, or changes what it waits for
	endless   bool   // only an action ends the phase
	unnoticed bool   // the phase's time has not started: the next tick records its start in the state
	since     uint64 // start of the phase's time, in Unix milliseconds
	most      uint64 // maximum duration, in milliseconds
}

// isOver reports whether a tick at now ends the phase.
func (p phase) isOver(now uint64) bool { return p.over || elapsed(p.since, now, p.most) }

// PhaseTime returns the maximum duration of the running phase in milliseconds; 0 if only actions
// end it.
func (s *State) PhaseTime() uint64 {
	if p := s.phase(); !p.endless {
		return p.most
	}
	return 0
}

// phase returns when the running phase ends. Tick and Due both use it, so that Due returns the time
// at which Tick changes the state.
func (s *State) phase() phase {
	p := phase{since: s.StateStart}
	switch s.RunState {
	case WaitingForMembers:
		enough := s.enoughWait()
		p.over = s.PendingPause || s.waitsAgain()
		p.endless = !enough
		p.unnoticed = enough && s.MinimumSince == 0
		p.since, p.most = s.MinimumSince, s.membersTime()
	case Warmup:
		healthy := s.HealthyCount()
		p.over = s.PendingPause || healthy < len(s.Epoch.Clients) || healthy < int(s.Config.MinClients) || s.readyCount() >= healthy
		p.most = s.Config.WarmupTime
	case RoundTrain:
		p.over = s.CurrentRound().HasQuorum() || s.quorumIsOutOfReach()
		p.most = s.Config.MaxRoundTrainTime
	case RoundWitness:
		p.over = s.noWitnessIsAwaited()
		p.most = s.Config.RoundWitnessTime
	case Cooldown:
		p.over = s.allReported()
		p.most = s.Config.CooldownTime
	case Paused:
		p.over = s.Closed || s.PendingResume
		p.endless = true
	}
	return p
}
