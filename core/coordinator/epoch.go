package coordinator

import (
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

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
		if client.State == Healthy && (!client.Active || client.Lateness != OnTime && !s.hasReported(client.ID)) {
			client.State = Dropped
		}
	}
}

func (s *State) hasReported(id ClientID) bool {
	return slices.ContainsFunc(s.Epoch.Reports, func(r CheckpointReport) bool { return r.Client == id })
}

// allReported reports whether every healthy member has reported its model.
func (s *State) allReported() bool {
	healthy := s.HealthyCount()
	if len(s.Epoch.Reports) < healthy {
		return false
	}
	reported := 0
	clients := lookup{clients: s.Epoch.Clients}
	for i := range s.Epoch.Reports {
		if clients.isHealthy(s.Epoch.Reports[i].Client) {
			reported++
		}
	}
	return reported == healthy
}

// settleCheckpoint records the digest that enough of the epoch's members reported.
// Without one the checkpoint stays what it was. A member that did not report the digest that was
// recorded has to load a model, and its optimizer forgets.
func (s *State) settleCheckpoint() {
	digest, ok := s.agreedDigest()
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		if !ok || !slices.Contains(s.Epoch.Reports, CheckpointReport{Client: client.ID, Digest: digest}) {
			client.OptimizerSince = 0
		}
	}
	if !ok {
		return
	}
	checkpoint := &s.Model.Checkpoint
	s.remember(*checkpoint)
	if checkpoint.Kind.isOrigin() {
		checkpoint.Origin = checkpoint.Kind
		checkpoint.Kind = checkpoint.Origin.overP2P()
	}
	checkpoint.Digest = digest
	checkpoint.Step = s.Progress.Step - 1
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		client.HoldsModel = slices.Contains(s.Epoch.Reports, CheckpointReport{Client: client.ID, Digest: digest})
	}
	for i := range s.Pending {
		s.Pending[i].HoldsModel = false // of the one before
	}
	for i := range s.Uploads {
		s.Uploads[i].Tries = 0 // a quorum had the model
	}
}

// votes reports whether a member has a say in what the checkpoint is: it is healthy, or it reported
// and left since, by itself or because its connection was lost. It is counted then among those of
// whom a quorum is wanted, too: leaving after a report makes nobody else's weigh more.
func (s *State) votes(c *Client) bool {
	return c.State == Healthy || c.State == Withdrawn && s.hasReported(c.ID)
}

// reportsNeeded returns how many members have to report a digest: ⌈2n/3⌉ of the n that vote, and
// never fewer than ⌈n/3⌉ of the n that the epoch began with. Whoever was removed or made to leave
// since, by witnesses that lie, by the host or by being deceived, a third of the first members cannot
// all lie: one of those that report is honest. What two members report two hold, in case that one of
// them is gone a moment later; a run that goes on with one has to do with one.
func (s *State) reportsNeeded() int {
	voters := 0
	for i := range s.Epoch.Clients {
		if s.votes(&s.Epoch.Clients[i]) {
			voters++
		}
	}
	return max(assign.Quorum(voters), (s.Seats()+2)/3, min(2, int(s.Config.MinClients)))
}

// agreedDigest returns the digest that enough members reported.
func (s *State) agreedDigest() (digest [32]byte, ok bool) {
	needed := s.reportsNeeded()
	clients := lookup{clients: s.Epoch.Clients}
	for _, candidate := range s.Epoch.Reports {
		count := 0
		for _, report := range s.Epoch.Reports {
			if client := clients.find(report.Client); report.Digest == candidate.Digest && client != nil && s.votes(client) {
				count++
			}
		}
		if count >= needed {
			return candidate.Digest, true
		}
	}
	return [32]byte{}, false
}
