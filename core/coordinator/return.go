package coordinator

import "slices"

// MayReturn reports whether Apply would accept a Return of the client now, or once the running
// round is over.
func (s *State) MayReturn(id ClientID) bool {
	if s.RunState != RoundTrain && s.RunState != RoundWitness || s.isEjected(id) || !s.Authority.MayJoin(id) {
		return false
	}
	for _, clients := range [][]Client{s.Epoch.Exited, s.Epoch.Clients} {
		if i := indexOf(clients, id); i >= 0 {
			state := clients[i].State
			return (state == Dropped || state == Withdrawn) && clients[i].Returns < MaxReturns
		}
	}
	return false
}

// returnSeat gives a client that left the running epoch its seat back. The client is a member of the
// rounds that start from now on, with the lateness that it had when it left. The epoch's other seats
// do not change. A member returns at most MaxReturns times in a term of the epoch.
func (s *State) returnSeat(from ClientID, a Return) error {
	switch {
	case s.RunState != RoundTrain && s.RunState != RoundWitness:
		return ErrWrongState
	case a.Epoch != s.Progress.Epoch:
		return ErrWrongEpoch
	case s.isHealthy(from):
		return ErrDuplicate
	}
	i := indexOf(s.Epoch.Exited, from)
	if i < 0 { // the client never had a seat, or its seat is freed when the running round ends
		return ErrNotMember
	}
	client := s.Epoch.Exited[i]
	if client.State == Ejected || s.isEjected(from) || !s.Authority.MayJoin(from) {
		return ErrNotAuthorised
	}
	waits := indexOf(s.Pending, from)
	if client.Returns >= MaxReturns {
		return ErrFull
	}
	if waits >= 0 {
		s.Pending = slices.Delete(s.Pending, waits, waits+1)
	}
	s.Epoch.Exited = slices.Delete(s.Epoch.Exited, i, i+1)
	client.State, client.ExitedHeight, client.Returns = Healthy, 0, client.Returns+1
	client.HoldsEarlier = 0                 // it may have been restarted
	client.OptimizerSince = s.Progress.Step // its momentum lacks at least some rounds
	if client.Lateness == FoundLate {
		client.Lateness = Late
	}
	s.Epoch.Clients = append(s.Epoch.Clients, client)
	return nil
}
