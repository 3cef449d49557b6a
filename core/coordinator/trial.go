package coordinator

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// A trial that the votes do not decide ends when both limits have passed.
const (
	TrialRounds = 6      // rounds after the round of the accusation; see Config.TrialRounds
	TrialTime   = 60_000 // milliseconds since the start of the phase of the accusation
)

// Limits of a trial in a run with shares by speed.
const (
	trialVerifies   = 20 // rounds in which a juror does not train, on average
	mostTrialRounds = 80 // rounds after the round of the accusation
)

// TrialRounds returns the number of rounds after the round of the accusation after which an undecided trial may end. With
// shares by speed, a juror may need sixteen times as long as the accused, and certainly has time in rounds in which it does
// not train. The number does not depend on the speed of the accused: to block other trials, false accusers would choose
// fast members, or rounds that are no longer stored.
func (c Config) TrialRounds() uint32 {
	if !c.SharesBySpeed || c.VerificationPercent == 0 {
		return TrialRounds
	}
	return min(100*trialVerifies/uint32(c.VerificationPercent), mostTrialRounds)
}

// minJury is the smallest jury that can judge. A trial with fewer drawn jurors ends undecided.
const minJury = 2

// Fault is the misbehaviour that a member is accused of.
type Fault uint8

// Kinds of a Fault.
const (
	FaultResult Fault = iota + 1 // its result does not match its batch
	FaultSilent                  // it does not open its result

	// FaultPart + i means that the i-th part of its opening is false or missing. A jury asks for this part.
	FaultPart
	maxFault = FaultPart + MaxParts - 1
)

// MaxParts is the maximum number of chunks that an opening has.
const MaxParts = 64

// IsAboutParts reports whether a jury asks for parts of the opening only, and not for all of it.
func (f Fault) IsAboutParts() bool { return f >= FaultSilent && f <= maxFault }

// Part returns the part of the opening that the accusation names; ok is false if it names none.
func (f Fault) Part() (i int, ok bool) {
	if f < FaultPart || f > maxFault {
		return 0, false
	}
	return int(f - FaultPart), true
}

// Trial is an accusation on which members vote. It is always about one result of one member.
type Trial struct {
	Slot      uint8 // the bit of Client.Juror and Client.Voted
	Accused   ClientID
	Accuser   ClientID
	Step      uint32 // of the result
	Fault     Fault
	Since     uint32 // step of the round of the accusation
	SinceTime uint64 // start of the phase of the accusation
	Jurors    uint8  // number of jurors; 0 before they are drawn
	Guilty    uint8  // how many jurors voted that the accused is guilty
	Innocent  uint8  // how many jurors voted that the accused is innocent
}

// Convicts reports whether enough jurors voted guilty to convict the accused.
func (t *Trial) Convicts() bool { return t.Jurors > 0 && decides(t.Guilty, t.Jurors) }

// Acquits reports whether enough jurors voted innocent to acquit the accused.
func (t *Trial) Acquits() bool { return t.Jurors > 0 && decides(t.Innocent, t.Jurors) }

// decides reports whether the votes for one side decide a trial: at least eleven twentieths of all
// its jurors, including jurors that have not voted.
func decides(votes, jurors uint8) bool { return 20*int(votes) >= 11*int(jurors) }

// Trial returns the trial of a client's result of a step, or nil.
func (s *State) Trial(accused ClientID, step uint32) *Trial {
	i := slices.IndexFunc(s.Trials, func(t Trial) bool { return t.Accused == accused && t.Step == step })
	if i < 0 {
		return nil
	}
	return &s.Trials[i]
}

// Juror reports whether a client may vote in the trial of a slot, and whether it has voted. Only
// healthy members and pending clients may vote.
func (s *State) Juror(id ClientID, slot uint8) (juror, voted bool) {
	client := s.juror(id)
	if client == nil {
		return false, false
	}
	return client.Juror>>slot&1 == 1, client.Voted>>slot&1 == 1
}

// juror returns the entry of a client that may vote in trials (a healthy member or a pending
// client), or nil. The bits Juror and Voted of the entry show in which trials.
func (s *State) juror(id ClientID) *Client {
	if client, ok := s.Member(id); ok && client.State == Healthy {
		return client
	}
	if i := indexOf(s.Pending, id); i >= 0 {
		return &s.Pending[i]
	}
	return nil
}

// MayAccuse returns the error with which Apply would refuse an accusation now, apart from an error
// about the nonce. A result of any earlier step may be accused. If the result is too old for jurors
// to judge, the trial ends undecided and counts as a complaint of the accuser.
func (s *State) MayAccuse(from ClientID, a Accuse) error {
	client, ok := s.Member(from)
	switch {
	case !s.active():
		return ErrWrongState
	case a.Fault < FaultResult || a.Fault > maxFault || a.Client == from || a.Step == 0:
		return ErrInvalidAction
	case a.Step >= s.Progress.Step:
		return ErrWrongStep
	case !ok || client.State != Healthy || !s.isKnown(a.Client):
		return ErrNotMember
	case s.onProbation(client, s.Progress.Step) || client.Complaints >= MaxComplaints:
		return ErrNotElected
	case s.isEjected(a.Client):
		return ErrDuplicate
	}
	of := 0
	for i := range s.Trials {
		t := &s.Trials[i]
		if t.Accuser == from || t.Accused == a.Client && t.Step == a.Step {
			return ErrDuplicate
		}
		if t.Accused == a.Client {
			of++
		}
	}
	switch {
	case of >= maxTrialsOfOne:
		return ErrDuplicate
	case len(s.Trials) >= MaxTrials:
		return ErrFull
	}
	return nil
}

// accuse starts a trial.
func (s *State) accuse(from ClientID, a Accuse) error {
	if err := s.MayAccuse(from, a); err != nil {
		return err
	}
	s.Trials = append(s.Trials, Trial{
		Slot:      s.freeSlot(),
		Accused:   a.Client,
		Accuser:   from,
		Step:      a.Step,
		Fault:     a.Fault,
		Since:     s.Progress.Step,
		SinceTime: s.StateStart,
	})
	return nil
}

// freeSlot returns the lowest slot without a trial. There must be one.
func (s *State) freeSlot() uint8 {
	slot := uint8(0)
	for slices.ContainsFunc(s.Trials, func(t Trial) bool { return t.Slot == slot }) {
		slot++
	}
	return slot
}

// vote counts a juror's vote, and ends the trial if the vote decides it. If the accused is
// convicted, it is ejected. If it is acquitted of a wrong result, the accuser is ejected. If it is
// acquitted of silence, no member is ejected, because the accuser may have been right at the time
// and the network at fault. The accusation then counts as a complaint.
func (s *State) vote(from ClientID, a Vote) error {
	t := s.Trial(a.Client, a.Step)
	if t == nil {
		return ErrNotMember
	}
	switch juror, voted := s.Juror(from, t.Slot); {
	case !juror:
		return ErrNotElected
	case voted:
		return ErrDuplicate
	}
	s.juror(from).Voted |= 1 << t.Slot
	if a.Guilty {
		t.Guilty++
	} else {
		t.Innocent++
	}
	switch ended := *t; {
	case ended.Convicts():
		s.endTrial(ended.Slot)
		s.expel(ended.Accused, FoundGuilty)
	case ended.Acquits():
		s.endTrial(ended.Slot)
		if ended.Fault == FaultResult {
			s.expel(ended.Accuser, AccusedWrongly)
		} else {
			s.complain(ended.Accuser)
		}
	}
	return nil
}

// endTrial removes the trial of a slot, and clears the bits of that slot in all clients, so that
// another trial can use the slot.
func (s *State) endTrial(slot uint8) {
	s.Trials = slices.DeleteFunc(s.Trials, func(t Trial) bool { return t.Slot == slot })
	for _, clients := range s.clientLists() {
		for i := range clients {
			clients[i].Juror &^= 1 << slot
			clients[i].Voted &^= 1 << slot
		}
	}
}

// complain counts an unsuccessful accusation as a complaint of its accuser. A member with
// MaxComplaints complaints cannot accuse again in the epoch.
func (s *State) complain(accuser ClientID) {
	for _, clients := range s.clientLists() {
		if i := indexOf(clients, accuser); i >= 0 && clients[i].Complaints < math.MaxUint8 {
			clients[i].Complaints++
		}
	}
}

// drawJuries is called when a round starts. It draws a jury for each trial that has none yet. The
// jurors are the first of the round's members in an order that the round's seed determines. The seed
// was unknown when the accusation was made. Members that do not have the data of the accused step
// are drawn like all others, and do not vote. If only members with the data were drawn, an accuser
// could choose a step for which only its allies have the data.
func (s *State) drawJuries() {
	round := s.CurrentRound()
	var order []int
	for _, t := range slices.Clone(s.Trials) {
		if t.Jurors > 0 {
			continue
		}
		if order == nil {
			order = assign.Jury(round.Seed, len(round.Members))
		}
		if s.drawJury(t, round.Members, order) < minJury {
			s.endTrial(t.Slot)
			s.complain(t.Accuser)
		}
	}
}

// drawJury draws the jury of a trial from members, and returns its size: the first MaxJury in the
// given order, without the accused and the accuser.
func (s *State) drawJury(t Trial, members []ClientID, order []int) (jurors uint8) {
	clients := lookup{clients: s.Epoch.Clients}
	for _, member := range order {
		if id := members[member]; jurors < MaxJury && id != t.Accused && id != t.Accuser {
			clients.find(id).Juror |= 1 << t.Slot
			jurors++
		}
	}
	s.Trial(t.Accused, t.Step).Jurors = jurors
	return jurors
}

// endTrials is called when the running round ends, and ends the trials whose time is over. If a
// jury did not decide, no member loses its seat, and the accusation counts as a complaint.
func (s *State) endTrials(now uint64) {
	for _, t := range slices.Clone(s.Trials) {
		if s.Progress.Step-t.Since < s.Config.TrialRounds() || now < t.SinceTime || now-t.SinceTime < TrialTime {
			continue
		}
		s.endTrial(t.Slot)
		s.complain(t.Accuser)
	}
}
