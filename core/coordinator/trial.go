package coordinator

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// How long a trial lasts at least: until both are over.
const (
	TrialRounds = 6      // after that of the accusation
	TrialTime   = 60_000 // milliseconds
)

// minJury is how few cannot judge.
const minJury = 2

// Fault is what somebody is accused of.
type Fault uint8

// The faults.
const (
	FaultResult Fault = iota + 1 // what it sent is not what its batch gives
	FaultSilent                  // it opens its result to nobody
)

// Trial is an accusation on which members vote. Nobody is on trial for anything but a result.
type Trial struct {
	Slot      uint8 // the bit of Client.Juror and Client.Voted
	Accused   ClientID
	Accuser   ClientID
	Step      uint32 // of the result
	Fault     Fault
	Since     uint32 // step of the round in which it was accused
	SinceTime uint64 // when the phase began in which it was accused
	Jurors    uint8  // how many there are; 0 before they are drawn
	Guilty    uint8  // how many of them said so
	Innocent  uint8
}

// Convicts reports whether so many of its jurors say that the accused is guilty that it is.
func (t *Trial) Convicts() bool { return t.Jurors > 0 && decides(t.Guilty, t.Jurors) }

// Acquits reports whether so many of its jurors say that the accused is innocent that it is.
func (t *Trial) Acquits() bool { return t.Jurors > 0 && decides(t.Innocent, t.Jurors) }

// decides reports whether so many votes of so many jurors decide: eleven in twenty. All jurors
// count, also those that say nothing.
func decides(votes, jurors uint8) bool { return 20*int(votes) >= 11*int(jurors) }

// Trial returns the trial of a client's result of a step, or nil.
func (s *State) Trial(accused ClientID, step uint32) *Trial {
	i := slices.IndexFunc(s.Trials, func(t Trial) bool { return t.Accused == accused && t.Step == step })
	if i < 0 {
		return nil
	}
	return &s.Trials[i]
}

// Juror reports whether a client may vote in the trial of a slot, and whether it has. It may as a
// healthy member and while it is pending.
func (s *State) Juror(id ClientID, slot uint8) (juror, voted bool) {
	client := s.juror(id)
	if client == nil {
		return false, false
	}
	return client.Juror>>slot&1 == 1, client.Voted>>slot&1 == 1
}

// juror returns where it is noted in which trials a client votes, or nil.
func (s *State) juror(id ClientID) *Client {
	if client, ok := s.Member(id); ok && client.State == Healthy {
		return client
	}
	if i := indexOf(s.Pending, id); i >= 0 {
		return &s.Pending[i]
	}
	return nil
}

// MayAccuse returns why Apply would refuse an accusation now, unless for its nonce. It names no
// window of steps: nobody can judge what is too old, and then it is a complaint of the accuser.
func (s *State) MayAccuse(from ClientID, a Accuse) error {
	client, ok := s.Member(from)
	switch {
	case !s.active():
		return ErrWrongState
	case a.Fault < FaultResult || a.Fault > FaultSilent || a.Client == from || a.Step == 0:
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
	case of >= MaxTrialsOfOne:
		return ErrDuplicate
	case len(s.Trials) >= MaxTrials:
		return ErrFull
	}
	return nil
}

// accuse begins a trial.
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

// freeSlot returns the lowest slot without a trial, of which there is one.
func (s *State) freeSlot() uint8 {
	slot := uint8(0)
	for slices.ContainsFunc(s.Trials, func(t Trial) bool { return t.Slot == slot }) {
		slot++
	}
	return slot
}

// vote counts a juror's vote, and ends the trial if it decides. To accuse somebody of a silence that
// others did not meet is no lie: it may have been the network.
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

// endTrial takes a trial out, and makes its slot a new one: nobody is a juror in it any more.
func (s *State) endTrial(slot uint8) {
	s.Trials = slices.DeleteFunc(s.Trials, func(t Trial) bool { return t.Slot == slot })
	for _, clients := range s.clientLists() {
		for i := range clients {
			clients[i].Juror &^= 1 << slot
			clients[i].Voted &^= 1 << slot
		}
	}
}

// complain notes that an accusation led to nothing: who made too many in an epoch makes no more.
func (s *State) complain(accuser ClientID) {
	for _, clients := range s.clientLists() {
		if i := indexOf(clients, accuser); i >= 0 && clients[i].Complaints < math.MaxUint8 {
			clients[i].Complaints++
		}
	}
}

// drawJuries draws the juries of members that were accused before the round that begins: the first of its
// members in the order of its seed, which nobody knew then. A member that cannot know is drawn as well and does
// not vote: if juries were of members that remember a step, an accuser could choose the step to suit.
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
		if jury := t.draw(round, order); len(jury) < minJury {
			s.endTrial(t.Slot)
			s.complain(t.Accuser)
		} else {
			s.swear(t.Slot, jury)
		}
	}
}

// draw returns the jury of a trial: members of a round, in an order.
func (t *Trial) draw(round *Round, order []int) []ClientID {
	var jury []ClientID
	for _, member := range order {
		if id := round.Members[member]; len(jury) < MaxJury && id != t.Accused && id != t.Accuser {
			jury = append(jury, id)
		}
	}
	return jury
}

// swear makes members the jury of the trial in a slot.
func (s *State) swear(slot uint8, jury []ClientID) {
	clients := lookup{clients: s.Epoch.Clients}
	for _, id := range jury {
		clients.find(id).Juror |= 1 << slot
	}
	i := slices.IndexFunc(s.Trials, func(t Trial) bool { return t.Slot == slot })
	s.Trials[i].Jurors = uint8(len(jury))
}

// endTrials ends those whose time is over with the running round. Nobody loses anything by a jury
// that does not agree.
func (s *State) endTrials(now uint64) {
	for _, t := range slices.Clone(s.Trials) {
		if s.Progress.Step-t.Since < TrialRounds || now < t.SinceTime || now-t.SinceTime < TrialTime {
			continue
		}
		s.endTrial(t.Slot)
		s.complain(t.Accuser)
	}
}
