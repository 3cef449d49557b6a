package coordinator

import "slices"

// removeLeavers moves members that are no longer healthy to the exited ones.
func (s *State) removeLeavers(height uint32) (changed bool) {
	for _, client := range s.Epoch.Clients {
		if client.State == Healthy {
			continue
		}
		client.ExitedHeight = height
		s.Epoch.Exited = append(s.Epoch.Exited, client)
		changed = true
	}
	if changed {
		s.Epoch.Clients = slices.DeleteFunc(s.Epoch.Clients, func(c Client) bool { return c.State != Healthy })
	}
	return changed
}

// membersToPending puts the healthy members that the run still admits before the
// newcomers, each in their order, and leaves the epoch without members.
func (s *State) membersToPending() {
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		if client.State == Healthy && !s.Authority.MayJoin(client.ID) {
			client.State = Withdrawn
		}
	}
	var height uint32
	if n := len(s.Epoch.Rounds); n > 0 {
		height = s.Epoch.Rounds[n-1].Height
	}
	s.removeLeavers(height)
	members := s.Epoch.Clients
	for i := range members {
		members[i].Active, members[i].Lateness, members[i].Returns, members[i].Complaints = false, OnTime, 0, 0
	}
	s.makeRoom(MaxClients - len(members))
	s.Pending = append(members, s.Pending...)
	s.Epoch.Clients = nil
	s.Epoch.Ready = nil
}

// dropSilent drops members that had no accepted action in the whole epoch: a live
// member has said Ready or reported its checkpoint. Of one that was found late the report is
// wanted: what it said before may have been its last.
func (s *State) dropSilent() {
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		if client.State == Healthy && (!client.Active || client.Lateness != OnTime && !s.hasReported(client)) {
			client.State = Dropped
		}
	}
}
