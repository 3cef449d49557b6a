package coordinator

import "slices"

// removeLeavers moves members that are no longer healthy to Exited.
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

// membersToPending moves the healthy members that the run still admits to the front of Pending,
// before the newcomers. Members and newcomers keep their order. The epoch then has no members.
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
		members[i].Offered, members[i].Excuses = false, 0
	}
	s.makeRoom(MaxClients - len(members))
	s.Pending = append(members, s.Pending...)
	s.Epoch.Clients = nil
	s.Epoch.Ready = nil
}

// forgive starts a new term of the epoch. It forgets the lateness, the excuses and the returns of members and of
// clients that left, as the end of the epoch does. Otherwise a few pauses of a machine could exclude
// it for the rest of a long epoch. Complaints stay, because no member loses a seat or a batch
// because of them.
//
// A member that was late counts as alive for dropSilent only after another action.
func (s *State) forgive() {
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range clients {
			client := &clients[i]
			client.Active = client.Active && client.Lateness == OnTime
			client.Lateness, client.Returns, client.Excuses = OnTime, 0, 0
		}
	}
}

// dropSilent drops members that show no sign of life. A live member sends Ready or reports its
// checkpoint, so a member without any accepted action in the whole epoch is dropped. A member that
// was found late in the epoch's last term must have reported its checkpoint, because an earlier
// action may have been its last. A member that was late in an earlier term must have sent an action
// since that term.
func (s *State) dropSilent() {
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		if client.State == Healthy && (!client.Active || client.Lateness != OnTime && !s.hasReported(client)) {
			client.State = Dropped
		}
	}
}
