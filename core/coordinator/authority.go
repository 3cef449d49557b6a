package coordinator

import (
	"math"
	"slices"
)

// MayJoin reports whether the run admits the key. A permissionless run admits all keys. A
// permissioned run admits the grantees of the join authority and their delegates.
func (a *Authority) MayJoin(id ClientID) bool {
	return !a.Permissioned || slices.ContainsFunc(a.Authorizations, func(x Authorization) bool {
		return x.Grantee == id || slices.Contains(x.Delegates, id)
	})
}

// admitted returns a function equivalent to MayJoin that is faster for many keys.
func (a *Authority) admitted() func(ClientID) bool {
	if !a.Permissioned {
		return a.MayJoin
	}
	ids := make([]ClientID, 0, 2*len(a.Authorizations))
	for i := range a.Authorizations {
		ids = append(append(ids, a.Authorizations[i].Grantee), a.Authorizations[i].Delegates...)
	}
	set := newIDSet(ids)
	return set.has
}

// Authorization returns the grantee's authorization.
func (a *Authority) Authorization(grantee ClientID) (*Authorization, bool) {
	i := slices.IndexFunc(a.Authorizations, func(x Authorization) bool { return x.Grantee == grantee })
	if i < 0 {
		return nil, false
	}
	return &a.Authorizations[i], true
}

func (a *Authority) clone() Authority {
	c := *a
	c.Authorizations = slices.Clone(a.Authorizations)
	for i := range c.Authorizations {
		c.Authorizations[i].Delegates = slices.Clone(c.Authorizations[i].Delegates)
	}
	c.Ejections = slices.Clone(a.Ejections)
	return c
}

func (s *State) setPaused(from ClientID, a SetPaused) error {
	if from != s.Authority.Main {
		return ErrNotAuthorised
	}
	pending := &s.PendingPause
	if s.RunState == Paused {
		pending = &s.PendingResume
		a.Paused = !a.Paused
	}
	if *pending == a.Paused {
		return ErrDuplicate
	}
	*pending = a.Paused
	return nil
}

// updateConfig applies new rules. It drops the rounds of the last epoch, because they ran under the
// old rules.
func (s *State) updateConfig(from ClientID, a UpdateConfig) error {
	switch {
	case from != s.Authority.Main:
		return ErrNotAuthorised
	case s.RunState != Paused:
		return ErrWrongState
	}
	if err := a.Validate(); err != nil {
		return err
	}
	model := a.Model
	replaced := !s.keepsCheckpoint(model.Checkpoint)
	if !replaced {
		model.Checkpoint = s.Model.Checkpoint
	}
	switch {
	case s.Progress.Step > a.Config.TotalSteps:
		return &ConfigError{Key: "total_steps", Problem: "must be more than the steps that the run has done"}
	case s.Progress.DataIndex != 0 && model.MaxSeqLen != s.Model.MaxSeqLen:
		return &ConfigError{Key: "max_seq_len", Problem: "must not change after training has begun: the numbers of the sequences depend on it"}
	case replaced && !model.Checkpoint.Kind.isOrigin():
		return &ConfigError{Key: "checkpoint", Problem: "must not be of a P2P kind, except the run's own: no member holds it"}
	}
	model.Definition = append([]byte(nil), model.Definition...)
	s.Config, s.Model = a.Config, model
	s.Epoch.Rounds = nil
	if replaced {
		s.Earlier, s.Uploads, s.OriginStep, s.Marks = nil, nil, s.Progress.Step, nil
		s.mark(s.OriginStep-1, s.Progress.DataIndex)
		for i := range s.Pending {
			s.Pending[i].HoldsModel, s.Pending[i].HoldsEarlier = false, 0
		}
	}
	return nil
}

// keepsCheckpoint reports whether c is the run's checkpoint, or its origin.
func (s *State) keepsCheckpoint(c Checkpoint) bool {
	present := s.Model.Checkpoint
	return c == present || c == present.origin()
}

// origin returns the fallback of a checkpoint from peers, and any other checkpoint unchanged.
func (c Checkpoint) origin() Checkpoint {
	if c.Kind.isOrigin() {
		return c
	}
	return Checkpoint{Kind: c.Origin, Repo: c.Repo, Revision: c.Revision}
}

func (s *State) authorize(from ClientID, a Authorize) error {
	switch {
	case from != s.Authority.Join:
		return ErrNotAuthorised
	case !s.Authority.Permissioned:
		return ErrPermissionless
	}
	return s.setAuthorized(Authorization{Grantee: a.Grantee}, a.Allowed)
}

// setAuthorized adds an authorization, with the next number, or ends the grantee's authorization.
func (s *State) setAuthorized(x Authorization, allowed bool) error {
	authority := &s.Authority
	i := slices.IndexFunc(authority.Authorizations, func(other Authorization) bool { return other.Grantee == x.Grantee })
	switch {
	case allowed == (i >= 0):
		return ErrDuplicate
	case !allowed:
		authority.Authorizations = slices.Delete(authority.Authorizations, i, i+1)
		s.withdrawUnauthorized()
	case len(authority.Authorizations) >= MaxAuthorizations, authority.Grants == 1<<32-1:
		return ErrFull
	default:
		authority.Grants++
		x.Number = authority.Grants
		authority.Authorizations = append(authority.Authorizations, x)
	}
	return nil
}

func (s *State) setDelegates(from ClientID, a SetDelegates) error {
	authorization, ok := s.Authority.Authorization(from)
	switch {
	case !s.Authority.Permissioned:
		return ErrPermissionless
	case !ok:
		return ErrNotAuthorised
	case a.Number != authorization.Number:
		return ErrWrongNumber
	case len(a.Delegates) > MaxDelegates:
		return ErrFull
	case slices.Contains(a.Delegates, from), repeats(a.Delegates):
		return ErrInvalidAction
	case slices.Equal(a.Delegates, authorization.Delegates):
		return ErrDuplicate
	}
	authorization.Delegates = slices.Clone(a.Delegates)
	s.withdrawUnauthorized()
	return nil
}

// withdrawUnauthorized removes clients that the run no longer admits from Pending.
func (s *State) withdrawUnauthorized() {
	s.Pending = slices.DeleteFunc(s.Pending, func(c Client) bool {
		if s.Authority.MayJoin(c.ID) {
			return false
		}
		c.State = Withdrawn
		s.depart(c)
		return true
	})
}

func (s *State) eject(from ClientID, a Eject) error {
	if from != s.Authority.Main {
		return ErrNotAuthorised
	}
	return s.remove(a.Client, ByAuthority)
}

// equivocate ejects a member that signed two results for one of its batches in a stored round.
func (s *State) equivocate(from ClientID, a Equivocation) error {
	round := s.RoundOfStep(a.Step)
	if round == nil {
		return ErrWrongStep
	}
	if _, ok := round.MemberIndex(a.Client); !ok || !s.isHealthy(from) && !s.IsPending(from) {
		return ErrNotMember
	}
	return s.remove(a.Client, TwoResults)
}

// remove ejects a client that is pending, a member, or has left. A client that has left is also
// ejected, because it could return or join again.
func (s *State) remove(id ClientID, reason EjectionReason) error {
	if s.isEjected(id) || !s.isKnown(id) {
		return ErrNotMember
	}
	s.expel(id, reason)
	return nil
}

// isKnown reports whether a client is or was a member of the epoch, or is or was pending for it.
func (s *State) isKnown(id ClientID) bool {
	for _, clients := range s.clientLists() {
		if indexOf(clients, id) >= 0 {
			return true
		}
	}
	return false
}

// expel ejects a client, even if the state has forgotten it.
func (s *State) expel(id ClientID, reason EjectionReason) {
	if i := indexOf(s.Pending, id); i >= 0 {
		client := s.Pending[i]
		s.Pending = slices.Delete(s.Pending, i, i+1)
		s.depart(client)
	}
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited, s.Departed} {
		if i := indexOf(clients, id); i >= 0 {
			clients[i].State = Ejected
		}
	}
	if !s.isEjected(id) {
		s.keepOut(id, reason)
	}
}

// keepOut records an ejection. An ejection by the main authority lasts for the rest of the epoch and
// the whole next epoch. For a cheater, the configuration sets the duration.
func (s *State) keepOut(id ClientID, reason EjectionReason) {
	epochs := uint32(1)
	if reason != ByAuthority {
		epochs = uint32(s.Config.EjectionEpochs)
	}
	until := s.Progress.Epoch + 1
	until += min(epochs, math.MaxUint32-until)
	ejections := &s.Authority.Ejections
	if len(*ejections) == MaxEjections {
		*ejections = slices.Delete(*ejections, 0, 1)
	}
	*ejections = append(*ejections, Ejection{Client: id, Until: until, Reason: reason})
}

// isEjected reports whether the client was ejected and may not join again yet.
func (s *State) isEjected(id ClientID) bool {
	return slices.ContainsFunc(s.Authority.Ejections, func(e Ejection) bool {
		return e.Client == id && s.Progress.Epoch < e.Until
	})
}

// forgetEjections removes the ejections that end with the new epoch number.
func (s *State) forgetEjections() {
	s.Authority.Ejections = slices.DeleteFunc(s.Authority.Ejections, func(e Ejection) bool {
		return s.Progress.Epoch >= e.Until
	})
}

func (s *State) close(from ClientID) error {
	switch {
	case from != s.Authority.Main:
		return ErrNotAuthorised
	case s.RunState != Paused && s.RunState != Finished:
		return ErrWrongState
	}
	s.Closed = true
	s.PendingResume = false
	return nil
}
