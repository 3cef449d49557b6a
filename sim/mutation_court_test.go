package sim

import (
	"errors"
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// courtFaults are those under which members are tried.
const courtFaults = CheatingTrainer | LazyVerifier | Slanderer

// courtMutations break the rules of audits and trials.
var courtMutations = []mutation{
	{"half of a jury ejects", halfEjects, courtFaults, []Assertion{FairlyTried, NobodyFramed}, 0},
	{"an accusation ejects", accusationEjects, courtFaults, []Assertion{FairlyTried, NobodyFramed}, 0},
	{"anybody is accused of anything", anybodyAccused, courtFaults, []Assertion{FairlyTried}, 0},
	{"members are accused twice at a time", triedTwice, courtFaults, []Assertion{FairlyTried, Invariants}, 0},
	{"the jury is known when somebody is accused", juryIsKnown, courtFaults, []Assertion{FairlyTried}, 0},
	{"who does not open in time is ejected", silenceEjects, courtFaults | Crash | Drop, []Assertion{FairlyTried, NobodyFramed}, 0},
	{"who accused wrongly stays", slanderIsFree, courtFaults, []Assertion{FairlyTried}, 0},
	{"who said that somebody did not open is ejected", complaintsEject, courtFaults | Drop | Partition, []Assertion{FairlyTried, NobodyFramed}, 0},
	{"who said that a verifier did not reveal is ejected", complaintsAboutVerifiersEject, courtFaults | Drop | Partition, []Assertion{FairlyTried, NobodyFramed}, 0},
	{"members complain as often as they like", complaintsAreForgotten, courtFaults | Drop | Partition, []Assertion{FairlyTried}, 0},
	{"trainers accuse whoever verifies", strangersAccuseVerifiers, courtFaults, []Assertion{FairlyTried, Invariants}, 0},
	{"who was ejected joins again at once", ejectedJoin, courtFaults, []Assertion{FairlyTried}, 0},
	{"trainers seal verdicts", trainersSeal, courtFaults, []Assertion{AuditsRight}, 0},
	{"verdicts need no seal", unsealedVerdicts, courtFaults, []Assertion{AuditsRight}, 0},
	{"who does not audit is on time", idleOnTime, courtFaults, []Assertion{AuditsRight}, 0},
	{"who audits is late", auditorsLate, courtFaults, []Assertion{NotFramed}, 0},
	{"who is accused and leaves may return", leaversReturn, courtFaults | Crash, []Assertion{FairlyTried}, 51},
}

// onApply changes what an action has done, or its refusal.
func onApply(change func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error) rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		return change(s, from, a, s.Apply(from, nonce, a))
	}}
}

// eject ejects a member as a jury would.
func eject(s *coordinator.State, id coordinator.ClientID) {
	if member, ok := s.Member(id); ok && member.State == coordinator.Healthy {
		member.State = coordinator.Ejected
		s.Authority.Ejections = append(s.Authority.Ejections, coordinator.Ejection{
			Client: id, Until: s.Progress.Epoch + 1 + uint32(s.Config.EjectionEpochs), Reason: coordinator.FoundGuilty,
		})
		s.Epoch.Trials = slices.DeleteFunc(s.Epoch.Trials, func(t coordinator.Trial) bool { return t.Accused == id })
	}
}

func halfEjects() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if v, ok := a.(coordinator.Vote); ok && err == nil {
			if t := s.Trial(v.Client); t != nil {
				guilty := 0
				for i := range t.Jury {
					guilty += int(t.Guilty >> i & 1)
				}
				if 2*guilty >= len(t.Jury) {
					eject(s, v.Client)
				}
			}
		}
		return err
	})
}

func accusationEjects() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, a coordinator.Action, err error) error {
		if accusation, ok := a.(coordinator.Accuse); ok && err == nil {
			eject(s, accusation.Client)
		}
		return err
	})
}

// tries begins a trial whatever speaks against it.
func tries(s *coordinator.State, from coordinator.ClientID, a coordinator.Accuse) {
	s.Epoch.Trials = append(s.Epoch.Trials, coordinator.Trial{Accused: a.Client, Accuser: from, Step: a.Step, Fault: a.Fault, Since: s.Progress.Step})
}

// anybodyAccused takes an accusation of its target for one of the next member that is in no trial.
func anybodyAccused() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		accusation, ok := a.(coordinator.Accuse)
		if !ok || accusation.Fault != coordinator.FaultResult || s.MayAccuse(from, accusation) != nil {
			return s.Apply(from, nonce, a)
		}
		if err := s.Apply(from, nonce, a); err != nil {
			return err
		}
		for i := range s.Epoch.Clients {
			id := s.Epoch.Clients[i].ID
			if id != from && id != accusation.Client && s.Trial(id) == nil {
				s.Epoch.Trials[len(s.Epoch.Trials)-1].Accused = id
				return nil
			}
		}
		return nil
	}}
}

func triedTwice() rules {
	return onApply(func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error {
		if accusation, ok := a.(coordinator.Accuse); ok && errors.Is(err, coordinator.ErrDuplicate) {
			tries(s, from, accusation)
			return nil
		}
		return err
	})
}

// juryIsKnown has the first members in their order judge.
func juryIsKnown() rules {
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		for i := range s.Epoch.Trials {
			if t := &s.Epoch.Trials[i]; s.RunState == coordinator.RoundTrain && t.Since+1 == s.Progress.Step {
				t.Jury = slices.DeleteFunc(slices.Clone(s.CurrentRound().Members), func(id coordinator.ClientID) bool { return id == t.Accused || id == t.Accuser })
				t.Jury = t.Jury[:min(len(t.Jury), 32)]
			}
		}
	})
}

func silenceEjects() rules {
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		for _, t := range slices.Clone(s.Epoch.Trials) {
			if t.Opening == [32]byte{} && s.Progress.Step > t.OpenUntil() {
				eject(s, t.Accused)
			}
		}
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

func complaintsEject() rules { return complaints(coordinator.FaultUnopened) }

func complaintsAboutVerifiersEject() rules { return complaints(coordinator.FaultUnrevealed) }

// complaints has juries treat a fault of silence as if it were another one.
func complaints(about coordinator.Fault) rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		vote, ok := a.(coordinator.Vote)
		if !ok || s.Trial(vote.Client) == nil || s.Trial(vote.Client).Fault != about {
			return s.Apply(from, nonce, a)
		}
		s.Trial(vote.Client).Fault = coordinator.FaultResult
		err := s.Apply(from, nonce, a)
		if t := s.Trial(vote.Client); t != nil {
			t.Fault = about
		}
		return err
	}}
}

func complaintsAreForgotten() rules {
	return onApply(func(s *coordinator.State, _ coordinator.ClientID, _ coordinator.Action, err error) error {
		for i := range s.Epoch.Clients {
			s.Epoch.Clients[i].Unopened, s.Epoch.Clients[i].Unrevealed = false, false
		}
		return err
	})
}

// strangersAccuseVerifiers takes accusations of verifiers by trainers that they did not audit.
func strangersAccuseVerifiers() rules {
	return onApply(func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error {
		if accusation, ok := a.(coordinator.Accuse); ok && accusation.Fault.OfVerifier() && errors.Is(err, coordinator.ErrNotElected) {
			tries(s, from, accusation)
			return nil
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

// trainersSeal takes what a verifier seals for the seal of the first member that trains.
func trainersSeal() rules {
	return onApply(func(s *coordinator.State, from coordinator.ClientID, a coordinator.Action, err error) error {
		seal, ok := a.(coordinator.SealVerdict)
		round := s.RoundOfStep(seal.Step)
		if !ok || !errors.Is(err, coordinator.ErrNotElected) || round == nil {
			return err
		}
		member, _ := round.MemberIndex(from)
		round.Sealed[member/8] |= 1 << (member % 8)
		return nil
	})
}

func unsealedVerdicts() rules {
	return rules{apply: func(s *coordinator.State, from coordinator.ClientID, nonce uint64, a coordinator.Action) error {
		verdict, ok := a.(coordinator.Verdict)
		if err := s.Apply(from, nonce, a); !ok || !errors.Is(err, coordinator.ErrInvalidAction) {
			return err
		}
		round := s.RoundOfStep(verdict.Step)
		member, _ := round.MemberIndex(from)
		round.Sealed[member/8] |= 1 << (member % 8)
		round.Judged[member/8] |= 1 << (member % 8)
		return nil
	}}
}

// idleOnTime has every member judge by itself when a round ends.
func idleOnTime() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		round := s.RoundOfStep(s.Progress.Step - 1)
		if s.RunState != coordinator.RoundWitness || round == nil {
			return s.Tick(now, draw)
		}
		judged := round.Judged
		for i := range round.Members {
			round.Judged[i/8] |= 1 << (i % 8)
		}
		step := round.Step
		changed := s.Tick(now, draw)
		if round := s.RoundOfStep(step); round != nil {
			round.Judged = judged
		}
		return changed
	}}
}

// auditorsLate has no member judge when a round ends.
func auditorsLate() rules {
	return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		round := s.RoundOfStep(s.Progress.Step - 1)
		if s.RunState != coordinator.RoundWitness || round == nil {
			return s.Tick(now, draw)
		}
		judged, step := round.Judged, round.Step
		round.Judged = coordinator.MemberSet{}
		changed := s.Tick(now, draw)
		if round := s.RoundOfStep(step); round != nil {
			round.Judged = judged
		}
		return changed
	}}
}

// leaversReturn lets who was accused and left come back.
func leaversReturn() rules {
	return afterTick(func(s *coordinator.State, _ coordinator.RunState) {
		for i := range s.Epoch.Exited {
			if c := &s.Epoch.Exited[i]; c.Returns == coordinator.MaxReturns && c.State != coordinator.Ejected {
				c.Returns = 0
			}
		}
	})
}
