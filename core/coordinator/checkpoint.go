package coordinator

import "github.com/psyche-go/psyche/core/assign"

// report records the model that a member holds. In Cooldown it is the model of the last step. During
// rounds it may be the model of any finished step of the epoch. If enough members report the same
// step, the run has a model to fall back to (Epoch.Commit). Members that leave also report their
// model.
func (s *State) report(from ClientID, a ReportCheckpoint) error {
	if !s.active() {
		return ErrWrongState
	}
	if a.Step > s.Progress.Step || a.Step <= s.Epoch.StartStep || s.RunState == Cooldown && a.Step != s.Progress.Step {
		return ErrWrongStep
	}
	if !s.isHealthy(from) {
		return ErrNotMember
	}
	client, _ := s.Member(from)
	model := Recorded{Step: a.Step - 1, Digest: a.Digest}
	switch {
	case model == s.Epoch.Commit && client.HoldsEarlier != model.Step:
		client.HoldsEarlier = model.Step
		return nil
	case model.Step <= max(client.Report.Step, s.Epoch.Commit.Step):
		return ErrDuplicate
	}
	client.Report, client.HeldOut = model, a.HeldOut
	if s.RunState != Cooldown && s.agreesOn(model) {
		s.commit(model)
	}
	return nil
}

// forgetReport removes the report of a model, with its claim.
func (c *Client) forgetReport() { c.Report, c.HeldOut = Recorded{}, 0 }

// keepClaim removes the report of the last epoch. It keeps the claim if the new epoch starts from the
// reported model.
func (c *Client) keepClaim(from Checkpoint) {
	if c.Report.Step == 0 || c.Report != (Recorded{Step: from.Step, Digest: from.Digest}) {
		c.HeldOut = 0
	}
	c.Report = Recorded{}
}

// commit records the newest model that enough members reported during the epoch. If the epoch ends
// without agreement on its last model, the run continues from this one.
func (s *State) commit(model Recorded) {
	s.markCommit(model.Step)
	s.Epoch.Commit = model
	for i := range s.Epoch.Clients {
		if client := &s.Epoch.Clients[i]; client.Report == model {
			client.HoldsEarlier = model.Step
		}
	}
}

// members returns the lists of all clients that have or had a seat in the epoch.
func (s *State) members() [2][]Client { return [2][]Client{s.Epoch.Clients, s.Epoch.Exited} }

// votes reports whether a member's report counts in the decision on the model of a step. It counts
// if the member is healthy, or if the member reported a model of the step and then withdrew or lost
// its connection. Such a member also counts as a voter when the quorum is computed, so leaving after
// a report does not increase the weight of the other members.
func (c *Client) votes(step uint32) bool {
	return c.State == Healthy || c.State == Withdrawn && c.Report.Step == step
}

// agreesOn reports whether enough members reported a model: ⌈2n/3⌉ of the n members whose reports
// count, and at least ⌈m/3⌉ of the m members that the epoch started with. The second condition
// matters if dishonest witnesses, the host or a deception have removed members since then. Fewer
// than a third of the first members are dishonest, so at least one of the reports is honest.
func (s *State) agreesOn(model Recorded) bool {
	voters, count := 0, 0
	for _, clients := range s.members() {
		for i := range clients {
			if clients[i].votes(model.Step) {
				voters++
				if clients[i].Report == model {
					count++
				}
			}
		}
	}
	return count >= max(assign.Quorum(voters), s.fewestReports())
}

// fewestReports returns ⌈n/3⌉ for the n members at the start of the epoch: the minimum number of
// equal reports for agreement on a model.
func (s *State) fewestReports() int { return (s.Seats() + 2) / 3 }

// agreed returns the model of the epoch's last step if enough members reported it.
func (s *State) agreed() (model Recorded, ok bool) {
	for _, clients := range s.members() {
		for i := range clients {
			if r := clients[i].Report; r.Step == s.Progress.Step-1 && r != model {
				if model = r; s.agreesOn(model) {
					return model, true
				}
			}
		}
	}
	return Recorded{}, false
}

// Reporters returns the clients that reported a model of step, in the running epoch or, between
// epochs, in the last one.
func (s *State) Reporters(step uint32) (reporters []Client) {
	for _, clients := range [][]Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending} {
		for i := range clients {
			if step != 0 && clients[i].Report.Step == step {
				reporters = append(reporters, clients[i])
			}
		}
	}
	return reporters
}

// hasReported reports whether a member has reported the model of the last step.
func (s *State) hasReported(c *Client) bool { return c.Report.Step == s.Progress.Step-1 }

// allReported reports whether every healthy member has reported its model.
func (s *State) allReported() bool {
	for i := range s.Epoch.Clients {
		if c := &s.Epoch.Clients[i]; c.State == Healthy && !s.hasReported(c) {
			return false
		}
	}
	return true
}

// finalizeCheckpoint records the model of the epoch's last step if enough members reported it.
// Otherwise it records the newest model that enough members reported during the rounds. If there is
// none, the checkpoint does not change. A member that did not report the recorded model has to load
// it and loses its optimizer state.
func (s *State) finalizeCheckpoint() {
	model, ok := s.agreed()
	if !ok {
		model = s.Epoch.Commit
	}
	for i := range s.Epoch.Clients {
		if client := &s.Epoch.Clients[i]; !ok || client.Report != model {
			client.OptimizerSince = 0
		}
	}
	if model.Step == 0 {
		return
	}
	commit := s.Epoch.Commit
	checkpoint := &s.Model.Checkpoint
	before := *checkpoint
	s.remember(Recorded{Step: before.Step, Digest: before.Digest}, before.Kind)
	*checkpoint = before.Recorded(model)
	if ok {
		s.mark(model.Step, s.Progress.DataIndex)
	}
	if commit.Step != 0 && commit.Step < model.Step {
		s.remember(commit, checkpoint.Kind)
	}
	s.Epoch.Commit = Recorded{}
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		client.replaced(before.Step, commit.Step, ok && client.Report == model || client.HoldsEarlier == model.Step)
	}
	for i := range s.Pending {
		s.Pending[i].replaced(before.Step, commit.Step, false)
	}
	for i := range s.Uploads {
		s.Uploads[i].Tries = 0 // a quorum had the model
	}
}

// replaced updates a client after a new checkpoint has replaced the previous one. For a client that
// held the previous checkpoint, HoldsEarlier becomes that checkpoint's step, unless the client also
// holds the epoch's newest intermediate checkpoint, commit, which is newer. Older intermediate
// checkpoints are forgotten. before is the step of the previous checkpoint. It is 0 for an origin,
// which need not be remembered, because all clients can load it.
func (c *Client) replaced(before, commit uint32, holds bool) {
	if c.HoldsModel && (commit == 0 || c.HoldsEarlier != commit) {
		c.HoldsEarlier = before
	}
	c.HoldsModel = holds
}
