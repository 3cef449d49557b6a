package sim

import (
	"crypto/sha256"
	"errors"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// courtFaults are the faults under which members are tried.
const courtFaults = scenario.CheatingTrainer | scenario.Silent | scenario.Slanderer

// courtMutations break the rules of audits and trials.
var courtMutations = []mutation{
	{"half of a jury ejects", halfEjects, courtFaults, []check.Assertion{check.FairlyTried, check.NobodyFramed}, 43},
	{"an accusation ejects", accusationEjects, courtFaults, []check.Assertion{check.FairlyTried, check.NobodyFramed}, 0},
	{"results of the running round are tried", admitsAccusation(coordinator.ErrWrongStep), courtFaults, []check.Assertion{check.FairlyTried, check.Invariants}, 3},
	{"members on probation, and members with too many complaints, accuse", admitsAccusation(coordinator.ErrNotElected), courtFaults, []check.Assertion{check.FairlyTried}, 0},
	{"results are tried twice, and members accuse as many as they like", admitsAccusation(coordinator.ErrDuplicate), courtFaults, []check.Assertion{check.FairlyTried, check.Invariants}, 0},
	{"the jury is known at the time of the accusation", juryIsKnown, courtFaults, []check.Assertion{check.FairlyTried}, 0},
	{"the accuser is on the jury", accuserJudges, courtFaults, []check.Assertion{check.FairlyTried, check.Invariants}, 0},
	{"a member outside the jury votes", anybodyVotes, courtFaults, []check.Assertion{check.FairlyTried, check.Invariants}, 0},
	{"jurors vote as often as they like", votesAgain, courtFaults, []check.Assertion{check.FairlyTried, check.Invariants}, 0},
	{"a false accuser keeps its seat", slanderIsFree, courtFaults, []check.Assertion{check.FairlyTried}, 5},
	{"an accuser of silence is ejected", complaintsEject, courtFaults | scenario.Drop, []check.Assertion{check.FairlyTried, check.NobodyFramed}, 7},
	{"complaints are not counted", complaintsAreForgotten, courtFaults, []check.Assertion{check.FairlyTried}, 7},
	{"complaints outlast the epoch", complaintsStay, courtFaults, []check.Assertion{check.FairlyTried}, 7},
	{"complaints of pending clients are lost when an epoch begins", complaintsEndBetween, courtFaults, []check.Assertion{check.FairlyTried}, 78},
	{"undecided juries eject", undecidedEjects, courtFaults | scenario.Drop, []check.Assertion{check.FairlyTried, check.NobodyFramed}, 37},
	{"trials end with the epoch", trialsEndWithTheEpoch, courtFaults, []check.Assertion{check.FairlyTried}, 0},
	{"trials last six rounds, even short ones", trialsEndSoon, courtFaults, []check.Assertion{check.FairlyTried}, 54},
	{"trials end if a party leaves", leavingEndsTrials, courtFaults | scenario.Fleeing, []check.Assertion{check.FairlyTried}, 44},
	{"an ejected member joins again at once", ejectedJoin, courtFaults, []check.Assertion{check.FairlyTried}, 0},
	{"a member that returns is on probation again", returnsYoung, courtFaults | scenario.Fleeing, []check.Assertion{check.SeatsFair}, 0},
	{"values that witnesses reveal are not checked", falseWitnessReveals, scenario.AllFaults, []check.Assertion{check.AuditsRight}, 0},
	{"values that witnesses reveal do not change the audit seed", noChallenge, scenario.AllFaults, []check.Assertion{check.AuditsRight}, 0},
	{"the audit seed does not depend on the next draw", challengeIsKnown, scenario.AllFaults, []check.Assertion{check.AuditsRight}, 0},
	{"members that do not train become late", idleAreLate, courtFaults, []check.Assertion{check.NotFramed}, 0},
	{"one missing answer leads to an accusation", func() rules { return rules{accusesEarly: true} }, scenario.HonestFaults, []check.Assertion{check.HonestSafe}, 0},
	{"openings are kept for one round only", func() rules { return rules{forgets: true} }, scenario.HonestFaults, []check.Assertion{check.HonestSafe}, 0},
}

// onApply changes the effect of an action, or its refusal.
func onApply(change func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error) rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		return change(s, from, a, s.Apply(from, nonce, a))
	}}
}

// eject ejects a client as a jury would, and ends the trial of its result.
func eject(s *coordinator.State, id coordinator.ClientID, slot uint8) {
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range clients {
			if clients[i].ID == id {
				clients[i].State = coordinator.Ejected
			}
		}
	}
	s.Pending = slices.DeleteFunc(s.Pending, func(c coordinator.Client) bool { return c.ID == id })
	s.Authority.Ejections = append(s.Authority.Ejections, coordinator.Ejection{
		Client: id, Until: s.Progress.Epoch + 1 + uint32(s.Config.EjectionEpochs), Reason: coordinator.FoundGuilty,
	})
	closeTrial(s, slot)
}

// closeTrial ends a trial without any consequence.
func closeTrial(s *coordinator.State, slot uint8) {
	s.Trials = slices.DeleteFunc(s.Trials, func(t coordinator.Trial) bool { return t.Slot == slot })
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending, s.Departed} {
		for i := range clients {
			clients[i].Juror &^= 1 << slot
			clients[i].Voted &^= 1 << slot
		}
	}
}

func halfEjects() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if v, ok := a.(coordinator.Vote); ok && err == nil {
			if t := s.Trial(v.Client, v.Step); t != nil && 2*t.Guilty >= t.Jurors {
				eject(s, v.Client, t.Slot)
			}
		}
		return err
	})
}

func accusationEjects() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if accusation, ok := a.(coordinator.Accuse); ok && err == nil {
			eject(s, accusation.Client, s.Trials[len(s.Trials)-1].Slot)
		}
		return err
	})
}

// admitsAccusation accepts accusations that must be refused for a reason.
func admitsAccusation(reason error) func() rules {
	return func() rules {
		return onApply(func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error {
			accusation, ok := a.(coordinator.Accuse)
			if !ok || !errors.Is(err, reason) || len(s.Trials) == coordinator.MaxTrials {
				return err
			}
			slot := uint8(0)
			for slices.ContainsFunc(s.Trials, func(t coordinator.Trial) bool { return t.Slot == slot }) {
				slot++
			}
			s.Trials = append(s.Trials, coordinator.Trial{
				Slot: slot, Accused: accusation.Client, Accuser: from, Step: accusation.Step, Fault: accusation.Fault,
				Since: s.Progress.Step, SinceTime: s.StateStart,
			})
			return nil
		})
	}
}

// onSwearing changes the jury of a trial, which was drawn at the start of a round.
func onSwearing(change func(s *coordinator.State, t *coordinator.Trial)) rules {
	known := make(map[coordinator.Trial]bool)
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		for i := range s.Trials {
			t := &s.Trials[i]
			name := coordinator.Trial{Slot: t.Slot, Accused: t.Accused, Accuser: t.Accuser, Step: t.Step, Since: t.Since}
			if s.RunState == coordinator.RoundTrain && t.Jurors > 0 && !known[name] {
				known[name] = true
				change(s, t)
			}
		}
	})
}

// juryIsKnown uses the first members in their order as jurors, but not all members.
func juryIsKnown() rules {
	return onSwearing(func(s *coordinator.State, t *coordinator.Trial) {
		t.Jurors = 0
		for i := range s.Epoch.Clients {
			m := &s.Epoch.Clients[i]
			m.Juror &^= 1 << t.Slot
			if m.ID != t.Accused && m.ID != t.Accuser && t.Jurors < 3 {
				m.Juror |= 1 << t.Slot
				t.Jurors++
			}
		}
	})
}

func accuserJudges() rules {
	return onSwearing(func(s *coordinator.State, t *coordinator.Trial) {
		if accuser, ok := s.Member(t.Accuser); ok {
			accuser.Juror |= 1 << t.Slot
			t.Jurors++
		}
	})
}

// anybodyVotes counts the vote of a member that is not a juror as a juror's vote.
func anybodyVotes() rules {
	return onApply(func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error {
		if accusation, ok := a.(coordinator.Accuse); ok && err == nil { // the accuser votes at once
			t := s.Trial(accusation.Client, accusation.Step)
			t.Guilty++
		}
		return err
	})
}

func votesAgain() rules {
	return onApply(func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error {
		if vote, ok := a.(coordinator.Vote); ok && err == nil {
			if t := s.Trial(vote.Client, vote.Step); t != nil && t.Guilty+t.Innocent < t.Jurors {
				if vote.Guilty {
					t.Guilty++
				} else {
					t.Innocent++
				}
			}
		}
		return err
	})
}

func slanderIsFree() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if _, ok := a.(coordinator.Vote); ok && err == nil {
			s.Authority.Ejections = slices.DeleteFunc(s.Authority.Ejections, func(e coordinator.Ejection) bool {
				member, in := s.Member(e.Client)
				if in && e.Reason == coordinator.AccusedWrongly {
					member.State = coordinator.Healthy
				}
				return in && e.Reason == coordinator.AccusedWrongly
			})
		}
		return err
	})
}

// complaintsEject has juries that treat silence like a wrong result.
func complaintsEject() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		vote, ok := a.(coordinator.Vote)
		if !ok || s.Trial(vote.Client, vote.Step) == nil {
			return s.Apply(from, nonce, a)
		}
		about := s.Trial(vote.Client, vote.Step).Fault
		s.Trial(vote.Client, vote.Step).Fault = coordinator.FaultResult
		err := s.Apply(from, nonce, a)
		if t := s.Trial(vote.Client, vote.Step); t != nil {
			t.Fault = about
		}
		return err
	}}
}

// complaintsAreForgotten discards all complaints.
func complaintsAreForgotten() rules {
	forget := func(s *coordinator.State) {
		for i := range s.Epoch.Clients {
			s.Epoch.Clients[i].Complaints = 0
		}
	}
	return rules{
		apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
			err := s.Apply(from, nonce, a)
			if err == nil {
				forget(s)
			}
			return err
		},
		tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
			changed := s.Tick(now, draw)
			if changed {
				forget(s)
			}
			return changed
		},
	}
}

// complaintsStay keeps complaints when an epoch is over.
func complaintsStay() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		before, had := s.RunState, make(map[coordinator.ClientID]uint8)
		for i := range s.Epoch.Clients {
			had[s.Epoch.Clients[i].ID] = s.Epoch.Clients[i].Complaints
		}
		changed := s.Tick(now, draw)
		if before == coordinator.Cooldown && s.RunState != before {
			for i := range s.Pending {
				s.Pending[i].Complaints = max(s.Pending[i].Complaints, had[s.Pending[i].ID])
			}
		}
		return changed
	}}
}

// complaintsEndBetween forgets the complaints of pending clients when they become members.
func complaintsEndBetween() rules {
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		if s.RunState == coordinator.Warmup {
			for i := range s.Epoch.Clients {
				s.Epoch.Clients[i].Complaints = 0
			}
		}
	})
}

// undecidedEjects ejects an accused that a jury did not acquit in time.
func undecidedEjects() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		trials := slices.Clone(s.Trials)
		changed := s.Tick(now, draw)
		for _, t := range trials {
			if s.Trial(t.Accused, t.Step) == nil {
				eject(s, t.Accused, t.Slot)
			}
		}
		return changed
	}}
}

func trialsEndWithTheEpoch() rules {
	return afterTick(func(s *coordinator.State, before coordinator.RunState) {
		if before == coordinator.Cooldown {
			for len(s.Trials) > 0 {
				closeTrial(s, s.Trials[0].Slot)
			}
		}
	})
}

func trialsEndSoon() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		if s.RunState != coordinator.RoundWitness {
			return s.Tick(now, draw)
		}
		since := make(map[uint8]uint64)
		for i := range s.Trials {
			since[s.Trials[i].Slot] = s.Trials[i].SinceTime
			s.Trials[i].SinceTime -= min(s.Trials[i].SinceTime, coordinator.TrialTime)
		}
		before := s.Trials
		changed := s.Tick(now, draw)
		for i := range s.Trials {
			if slices.ContainsFunc(before, func(t coordinator.Trial) bool { return t.Slot == s.Trials[i].Slot }) {
				s.Trials[i].SinceTime = min(since[s.Trials[i].Slot], now)
			}
		}
		return changed
	}}
}

// leavingEndsTrials ends the trial of a member that leaves.
func leavingEndsTrials() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if leaves, ok := a.(coordinator.Withdraw); ok && err == nil {
			for _, t := range slices.Clone(s.Trials) {
				if t.Accused == leaves.Client {
					closeTrial(s, t.Slot)
				}
			}
		}
		return err
	})
}

func ejectedJoin() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		kept := s.Authority.Ejections
		if _, ok := a.(coordinator.Join); ok {
			s.Authority.Ejections = nil
			err := s.Apply(from, nonce, a)
			s.Authority.Ejections = kept
			return err
		}
		return s.Apply(from, nonce, a)
	}}
}

// returnsYoung puts a returning member on probation for one more step.
func returnsYoung() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if _, ok := a.(coordinator.Return); ok && err == nil {
			member, _ := s.Member(from)
			member.ProbationUntil = s.Progress.Step + 1
		}
		return err
	}}
}

// falseWitnessReveals accepts any value that a witness reveals.
func falseWitnessReveals() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		err := s.Apply(from, nonce, a)
		if witness, ok := a.(coordinator.WitnessRound); ok && errors.Is(err, coordinator.ErrInvalidAction) {
			member, _ := s.Member(from)
			member.Commitment = sha256.Sum256(witness.Reveal[:])
			err = s.Apply(from, nonce, a)
		}
		return err
	}}
}

func noChallenge() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if _, ok := a.(coordinator.WitnessRound); ok && err == nil {
			s.CurrentRound().Challenge = [32]byte{}
		}
		return err
	})
}

// challengeIsKnown draws the audited parts from the state of the chain during the round.
func challengeIsKnown() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		round := s.CurrentRound()
		if s.RunState != coordinator.RoundWitness || round == nil {
			return s.Tick(now, draw)
		}
		step := round.Step
		known := sha256.Sum256(slices.Concat([]byte("psyche/audit/seed/v1"), s.SeedChain[:], round.Challenge[:]))
		changed := s.Tick(now, draw)
		if round := s.RoundOfStep(step); s.RunState == coordinator.RoundTrain && round != nil {
			round.Challenge = known
		}
		return changed
	}}
}

// idleAreLate marks members without a batch in a completed round as late.
func idleAreLate() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		before := s.RunState
		changed := s.Tick(now, draw)
		round := s.RoundOfStep(s.Progress.Step - 1)
		if before != coordinator.RoundWitness || s.RunState == before || round == nil {
			return changed
		}
		trains := make(map[int]bool)
		for _, a := range round.Assignments(s.Config) {
			trains[a.Member] = true
		}
		for member, id := range round.Members {
			if m, ok := s.Member(id); ok && !trains[member] {
				m.Lateness = coordinator.Late
			}
		}
		return changed
	}}
}
