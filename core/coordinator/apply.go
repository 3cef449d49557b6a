package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// Apply applies an action signed by from. The nonces of one key must strictly increase, even if its
// owner restarts. If Apply refuses the action, it returns a Code and leaves the state unchanged.
// Apply never changes RunState; only Tick does.
func (s *State) Apply(from ClientID, nonce uint64, a Action) error {
	if s.RunState == Uninitialized || s.Closed {
		return ErrHalted
	}
	if _, closes := a.(Close); s.RunState == Finished && !closes {
		return ErrHalted
	}
	if nonce <= s.lastNonce(from) {
		return ErrStaleNonce
	}
	if err := s.apply(from, a); err != nil {
		return err
	}
	s.recordNonce(from, nonce)
	return nil
}

func (s *State) apply(from ClientID, a Action) error {
	switch a := a.(type) {
	case Join:
		return s.join(from, a)
	case Withdraw:
		return s.withdraw(from, a)
	case ReportUpload:
		return s.reportUpload(from, a)
	case SetPaused:
		return s.setPaused(from, a)
	case UpdateConfig:
		return s.updateConfig(from, a)
	case Authorize:
		return s.authorize(from, a)
	case SetDelegates:
		return s.setDelegates(from, a)
	case Admit:
		return s.admit(from, a)
	case Eject:
		return s.eject(from, a)
	case Equivocation:
		return s.equivocate(from, a)
	case Close:
		return s.close(from)
	}
	if s.RunState == Paused {
		return ErrHalted
	}
	switch a := a.(type) {
	case Ready:
		return s.ready(from, a)
	case Return:
		return s.returnSeat(from, a)
	case WitnessRound:
		return s.witness(from, &a)
	case Offer:
		return s.offer(from, a)
	case HealthCheck:
		return s.healthCheck(from, a)
	case ReportCheckpoint:
		return s.report(from, a)
	case Accuse:
		return s.accuse(from, a)
	case Vote:
		return s.vote(from, a)
	default:
		return ErrInvalidAction
	}
}

// clientLists returns all lists of clients with their nonces.
func (s *State) clientLists() [4][]Client {
	return [4][]Client{s.Epoch.Clients, s.Pending, s.Epoch.Exited, s.Departed}
}

// nonces returns the nonces of a key in the roles that it has.
func (s *State) nonces(id ClientID) []*uint64 {
	var nonces []*uint64
	if id == s.Host {
		nonces = append(nonces, &s.HostNonce)
	}
	if id == s.Authority.Main {
		nonces = append(nonces, &s.Authority.MainNonce)
	}
	if id == s.Authority.Join {
		nonces = append(nonces, &s.Authority.JoinNonce)
	}
	if authorization, ok := s.Authority.Authorization(id); ok {
		nonces = append(nonces, &authorization.Nonce)
	}
	return nonces
}

func (s *State) lastNonce(id ClientID) uint64 {
	var last uint64
	for _, nonce := range s.nonces(id) {
		last = max(last, *nonce)
	}
	for _, clients := range s.clientLists() {
		if i := indexOf(clients, id); i >= 0 {
			last = max(last, clients[i].Nonce)
		}
	}
	return last
}

func (s *State) recordNonce(id ClientID, nonce uint64) {
	for _, last := range s.nonces(id) {
		*last = nonce
	}
	for _, clients := range s.clientLists() {
		if i := indexOf(clients, id); i >= 0 {
			clients[i].Nonce = nonce
		}
	}
	if client, ok := s.Member(id); ok {
		client.Active = true
	}
}

func (s *State) join(from ClientID, a Join) error {
	if a.Epoch != s.Progress.Epoch {
		return ErrWrongEpoch
	}
	if !s.Authority.MayJoin(from) || s.isEjected(from) {
		return ErrNotAuthorised
	}
	joins := Client{ID: from, Commitment: a.Commitment}
	joins.HoldsModel, joins.HoldsEarlier = s.recordedAs(a.Holds)
	if i := indexOf(s.Pending, from); i >= 0 {
		waiting := &s.Pending[i]
		switch {
		case waiting.HoldsModel == joins.HoldsModel && waiting.HoldsEarlier == joins.HoldsEarlier && waiting.Commitment == a.Commitment:
			return ErrDuplicate
		case joins.HoldsModel || !waiting.HoldsModel:
			waiting.HoldsModel, waiting.HoldsEarlier, waiting.Commitment = joins.HoldsModel, joins.HoldsEarlier, a.Commitment
			return nil
		}
		s.credit(&joins)
		s.Pending = append(slices.Delete(s.Pending, i, i+1), joins)
		return nil
	}
	if err := s.evictIfFull(from); err != nil {
		return err
	}
	s.credit(&joins)
	if member, ok := s.Member(from); ok && member.State == Healthy {
		member.State = Withdrawn
	}
	s.Pending = append(s.Pending, joins)
	s.forgetDeparted(from)
	return nil
}

// forgetDeparted removes a client that is pending again from the departed clients.
func (s *State) forgetDeparted(id ClientID) {
	if i := indexOf(s.Departed, id); i >= 0 {
		s.Departed = slices.Delete(s.Departed, i, i+1)
	}
}

// forgetAllDeparted forgets the departed clients at the end of an epoch. If the epoch recorded no
// model, it keeps former members: they may hold the run's older model, and would otherwise return as
// newcomers without a seat.
func (s *State) forgetAllDeparted() {
	if c := s.Model.Checkpoint; c.Kind.isOrigin() || c.Step >= s.Epoch.StartStep {
		s.Departed = nil
		return
	}
	s.Departed = slices.DeleteFunc(s.Departed, Client.isNew)
}

// depart remembers a client that is no longer pending: whether it was a member, and its nonce, so
// that an old Join with the same epoch number cannot be replayed. If the list is full, depart
// forgets the oldest client that never was a member or, if there is none, the oldest client.
func (s *State) depart(client Client) {
	s.forgetDeparted(client.ID)
	if len(s.Departed) == MaxClients {
		oldest := max(0, slices.IndexFunc(s.Departed, Client.isNew))
		s.Departed = slices.Delete(s.Departed, oldest, oldest+1)
	}
	client.Waited = false
	client.forgetReport()
	s.Departed = append(s.Departed, client)
}

func (s *State) withdraw(from ClientID, a Withdraw) error {
	if from != a.Client && from != s.Host {
		return ErrNotAuthorised
	}
	if i := indexOf(s.Pending, a.Client); i >= 0 {
		client := s.Pending[i]
		client.State = Withdrawn
		s.Pending = slices.Delete(s.Pending, i, i+1)
		s.depart(client)
		return nil
	}
	client, ok := s.Member(a.Client)
	if !ok || client.State != Healthy {
		return ErrNotMember
	}
	client.State = Withdrawn
	return nil
}

func (s *State) ready(from ClientID, a Ready) error {
	if s.RunState != Warmup {
		return ErrWrongState
	}
	if a.Epoch != s.Progress.Epoch {
		return ErrWrongEpoch
	}
	client, ok := s.Member(from)
	if !ok || client.State != Healthy {
		return ErrNotMember
	}
	if slices.Contains(s.Epoch.Ready, from) {
		return ErrDuplicate
	}
	if !client.reveals(a.Reveal) {
		return ErrInvalidAction
	}
	s.addReveal(client, a)
	client.HoldsModel = true
	s.Epoch.Ready = append(s.Epoch.Ready, from)
	return nil
}

func (s *State) witness(from ClientID, a *WitnessRound) error {
	if s.RunState != RoundTrain && s.RunState != RoundWitness {
		return ErrWrongState
	}
	round := s.CurrentRound()
	if a.Step != round.Step {
		return ErrWrongStep
	}
	member, ok := round.MemberIndex(from)
	if !ok || !s.isHealthy(from) {
		return ErrNotMember
	}
	if slices.ContainsFunc(round.Witnesses, func(w Witness) bool { return int(w.Member) == member }) {
		return ErrDuplicate
	}
	if !assign.IsWitness(round.Seed, len(round.Members), int(s.Config.WitnessNodes), member) {
		return ErrNotElected
	}
	if round.overfills(&a.Participants, &a.Commitments, s.Config) {
		return ErrInvalidWitness
	}
	if client, _ := s.Member(from); !round.addReveal(client, a.Reveal) {
		return ErrInvalidAction
	}
	round.Witnesses = append(round.Witnesses, Witness{
		Member:          uint16(member),
		Participants:    a.Participants,
		Commitments:     a.Commitments,
		CommitmentsRoot: a.CommitmentsRoot,
		Replica:         a.Replica,
		Claim:           a.Claim,
	})
	return nil
}
