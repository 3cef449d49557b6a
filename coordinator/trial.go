package coordinator

import (
	"math/bits"
	"slices"

	"github.com/psyche-go/psyche/assign"
)

// How long the parts of a trial last, in rounds after the one of the accusation.
const (
	AccuseRounds = 2 // after that of the audit, in which its verifier may accuse
	OpenRounds   = 2 // in which the accused may open
	VoteRounds   = 4 // after these, in which jurors may vote
)

// minJury is how few cannot judge.
const minJury = 2

// Fault is what somebody is accused of.
type Fault uint8

// The faults.
const (
	FaultResult     Fault = iota + 1 // a trainer: what it sent is not what its batch gives
	FaultUnopened                    // a trainer: it did not open to its verifier
	FaultPrints                      // a verifier: it did not compute what it sealed
	FaultUnrevealed                  // a verifier: it did not reveal what it had sealed
)

// OfVerifier reports whether it is a verifier's fault, and not a trainer's.
func (f Fault) OfVerifier() bool { return f == FaultPrints || f == FaultUnrevealed }

// OfSilence reports whether the accused is said not to have shown something, which it may have
// shown to others.
func (f Fault) OfSilence() bool { return f == FaultUnopened || f == FaultUnrevealed }

// Trial is an accusation on which members vote.
type Trial struct {
	Accused  ClientID
	Accuser  ClientID
	Step     uint32 // of the round in which the accuser verified; what is asked for is of the step before
	Fault    Fault
	Since    uint32     // step of the round in which it was accused
	Opening  [32]byte   // what the accused opened, a blob; zero while it did not
	Jury     []ClientID // drawn when the round after Since begins
	Guilty   uint32     // jurors that said so: bit i stands for Jury[i]
	Innocent uint32
}

// OpenUntil returns the last step in which the accused may open.
func (t *Trial) OpenUntil() uint32 { return t.Since + OpenRounds }

// VoteUntil returns the last step in which jurors may vote.
func (t *Trial) VoteUntil() uint32 { return t.Since + OpenRounds + VoteRounds }

// IsJuror reports whether the client votes.
func (t *Trial) IsJuror(id ClientID) bool { return slices.Contains(t.Jury, id) }

// HasVoted reports whether the juror has.
func (t *Trial) HasVoted(id ClientID) bool {
	juror := slices.Index(t.Jury, id)
	return juror >= 0 && (t.Guilty|t.Innocent)>>juror&1 == 1
}

// MayVote reports whether votes are taken in a step: when the accused has opened, or its time to
// do so is over.
func (t *Trial) MayVote(step uint32) bool {
	return len(t.Jury) > 0 && step <= t.VoteUntil() && (t.Opening != [32]byte{} || step > t.OpenUntil())
}

// decides reports whether so many votes of the jury decide.
func (t *Trial) decides(votes uint32) bool { return 3*bits.OnesCount32(votes) >= 2*len(t.Jury) }

// Trial returns the trial of a client, or nil.
func (s *State) Trial(accused ClientID) *Trial {
	for i := range s.Epoch.Trials {
		if s.Epoch.Trials[i].Accused == accused {
			return &s.Epoch.Trials[i]
		}
	}
	return nil
}

// MayAccuse returns why Apply would refuse an accusation now, unless for its nonce.
func (s *State) MayAccuse(from ClientID, a Accuse) error {
	if s.RunState != RoundTrain && s.RunState != RoundWitness {
		return ErrWrongState
	}
	round, before := s.auditedRound(a.Step)
	if round == nil || s.Progress.Step-a.Step > AccuseRounds {
		return ErrWrongStep
	}
	if a.Fault < FaultResult || a.Fault > FaultUnrevealed || a.Client == from {
		return ErrInvalidAction
	}
	accuser, ok := round.MemberIndex(from)
	if !ok || !s.isHealthy(from) || !s.isHealthy(a.Client) {
		return ErrNotMember
	}
	if err := s.mayKnow(a, round, before, accuser); err != nil {
		return err
	}
	for i := range s.Epoch.Trials {
		t := &s.Epoch.Trials[i]
		if t.Accused == from || t.Accuser == from || t.Accused == a.Client || t.Accuser == a.Client {
			return ErrDuplicate
		}
	}
	if accuser, _ := s.Member(from); a.Fault.OfSilence() && *accuser.complained(a.Fault) {
		return ErrDuplicate
	}
	if len(s.Epoch.Trials) >= MaxTrials {
		return ErrFull
	}
	return nil
}

// mayKnow returns why a member of a round cannot know of a fault. Who has judged knows what its
// target sent and opened, and what others with the same target should have sealed; a trainer knows
// what who judged its own result should have sealed. What nobody can hold was not audited.
func (s *State) mayKnow(a Accuse, round, before *Round, accuser int) error {
	result, own := -1, false // whose result it is about, in the members of before
	if member, ok := round.MemberIndex(a.Client); a.Fault.OfVerifier() && ok && round.Judged.Has(member) {
		result = auditTarget(round, before, s.Config, member)
		own = result >= 0 && before.Members[result] == round.Members[accuser]
	} else if trainer, ok := before.MemberIndex(a.Client); !a.Fault.OfVerifier() && ok {
		result = trainer
	}
	switch {
	case !own && !round.Judged.Has(accuser):
		return ErrNotElected
	case result < 0, !own && auditTarget(round, before, s.Config, accuser) != result, before.isMissing(before.Members[result]):
		return ErrFalseAccusation
	}
	return nil
}

// accuse begins a trial.
func (s *State) accuse(from ClientID, a Accuse) error {
	if err := s.MayAccuse(from, a); err != nil {
		return err
	}
	if accuser, ok := s.Member(from); ok && a.Fault.OfSilence() {
		*accuser.complained(a.Fault) = true
	}
	s.Epoch.Trials = append(s.Epoch.Trials, Trial{
		Accused: a.Client,
		Accuser: from,
		Step:    a.Step,
		Fault:   a.Fault,
		Since:   s.Progress.Step,
	})
	return nil
}

// complained is where it is noted that a client accused somebody of a silence in this epoch. Each kind is
// apart: who has been made to complain of verifiers can still complain of trainers.
func (c *Client) complained(of Fault) *bool {
	if of == FaultUnrevealed {
		return &c.Unrevealed
	}
	return &c.Unopened
}

// open notes what the accused opened.
func (s *State) open(from ClientID, a Open) error {
	if !s.active() {
		return ErrWrongState
	}
	trial := s.Trial(from)
	switch {
	case trial == nil || !s.isHealthy(from):
		return ErrNotMember
	case a.Step != trial.Step || s.Progress.Step > trial.OpenUntil():
		return ErrWrongStep
	case len(trial.Jury) == 0: // the round of the accusation
		return ErrWrongState
	case a.Blob == [32]byte{}:
		return ErrInvalidAction
	case trial.Opening != [32]byte{}:
		return ErrDuplicate
	}
	trial.Opening = a.Blob
	return nil
}

// vote counts a juror's vote, and ends the trial if it decides.
func (s *State) vote(from ClientID, a Vote) error {
	if !s.active() {
		return ErrWrongState
	}
	trial := s.Trial(a.Client)
	switch {
	case trial == nil || !s.isHealthy(from):
		return ErrNotMember
	case a.Step != trial.Step || s.Progress.Step > trial.VoteUntil():
		return ErrWrongStep
	case !trial.IsJuror(from):
		return ErrNotElected
	case !trial.MayVote(s.Progress.Step):
		return ErrWrongState
	case trial.HasVoted(from):
		return ErrDuplicate
	}
	juror := uint32(1) << slices.Index(trial.Jury, from)
	if a.Guilty {
		trial.Guilty |= juror
	} else {
		trial.Innocent |= juror
	}
	s.decide(*trial)
	return nil
}

// decide ends a trial on which enough jurors agree. Nobody is punished for saying that another one
// did not open or reveal, which may have been the network, nor for accusing one that shows nothing.
func (s *State) decide(t Trial) {
	switch {
	case t.decides(t.Guilty):
		s.expel(t.Accused, FoundGuilty)
	case !t.decides(t.Innocent):
		return
	case !t.Fault.OfSilence() && t.Opening != [32]byte{}:
		s.expel(t.Accuser, AccusedWrongly)
	}
	s.endTrial(t.Accused)
}

func (s *State) endTrial(accused ClientID) {
	s.Epoch.Trials = slices.DeleteFunc(s.Epoch.Trials, func(t Trial) bool { return t.Accused == accused })
}

// expel ejects a client wherever it is: who leaves when it is accused does not escape that way.
func (s *State) expel(id ClientID, reason EjectionReason) {
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited} {
		if i := indexOf(clients, id); i >= 0 {
			clients[i].State = Ejected
		}
	}
	if i := indexOf(s.Pending, id); i >= 0 {
		client := s.Pending[i]
		client.State = Ejected
		s.Pending = slices.Delete(s.Pending, i, i+1)
		s.depart(client)
	}
	if !s.isEjected(id) {
		s.keepOut(id, reason)
	}
}

// drawJuries draws the juries of who was accused in the round before the one that begins: the first
// of its members in the order of its seed, which nobody knew then. Where there are too few the
// trial ends.
func (s *State) drawJuries() {
	round := s.CurrentRound()
	var order []int
	for i := range s.Epoch.Trials {
		trial := &s.Epoch.Trials[i]
		if len(trial.Jury) > 0 {
			continue
		}
		if order == nil {
			order = assign.Jury(round.Seed, len(round.Members))
		}
		for _, member := range order {
			if id := round.Members[member]; len(trial.Jury) < MaxJury && id != trial.Accused && id != trial.Accuser {
				trial.Jury = append(trial.Jury, id)
			}
		}
	}
	s.Epoch.Trials = slices.DeleteFunc(s.Epoch.Trials, func(t Trial) bool { return len(t.Jury) < minJury })
}

// endTrials ends those whose time is over with the running round. An accused that is gone when it
// should have opened at last is not ejected, but it does not come back into the epoch. Where a jury
// does not agree nobody loses, but who of it was there and did not vote is found late.
func (s *State) endTrials() {
	left := s.room()
	s.Epoch.Trials = slices.DeleteFunc(s.Epoch.Trials, func(t Trial) bool {
		switch {
		case t.Opening == [32]byte{} && s.Progress.Step == t.OpenUntil() && s.isGone(t.Accused):
			s.shutOut(t.Accused)
			return true
		case s.Progress.Step < t.VoteUntil():
			return false
		}
		for juror, id := range t.Jury {
			if (t.Guilty|t.Innocent)>>juror&1 == 0 {
				s.findLate(id, &left)
			}
		}
		return true
	})
}

// isGone reports whether a client left the epoch, or showed no sign of life in the running round:
// neither a proof, nor a seal, nor a result that a quorum holds. It may have crashed.
func (s *State) isGone(id ClientID) bool {
	round := s.CurrentRound()
	member, ok := round.MemberIndex(id)
	if !ok || !s.isHealthy(id) {
		return true
	}
	return !slices.ContainsFunc(round.Witnesses, func(w Witness) bool { return int(w.Member) == member }) &&
		!round.Sealed.Has(member) && round.Score(id) < int(round.WitnessesNeeded)
}

// shutOut drops a client that is gone and keeps it from coming back into the running epoch.
func (s *State) shutOut(id ClientID) {
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited} {
		i := indexOf(clients, id)
		if i < 0 {
			continue
		}
		clients[i].Returns = MaxReturns
		if clients[i].State == Healthy {
			clients[i].State = Dropped
		}
	}
}
