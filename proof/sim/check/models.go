package check

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// reported checks an accepted report, and the intermediate checkpoint that it may have completed.
func (c *Checker) reported(s *coordinator.State, from coordinator.ClientID, a coordinator.ReportCheckpoint) {
	r, model := &c.reports, coordinator.Recorded{Step: a.Step - 1, Digest: a.Digest}
	if a.Step > s.Progress.Step || a.Step <= s.Epoch.StartStep || s.RunState == coordinator.Cooldown && a.Step != s.Progress.Step {
		c.Violate(CheckpointTrue, "%s reports the model of step %d in %v of step %d", c.NameOf(from), model.Step, s.RunState, s.Progress.Step)
	}
	switch {
	case model == r.commit:
		r.holds[from] = true
	case model.Step <= max(r.said[from].Step, r.commit.Step):
		c.Violate(CheckpointTrue, "%s reports the model of step %d after the model of step %d; the intermediate checkpoint has step %d", c.NameOf(from), model.Step, r.said[from].Step, r.commit.Step)
	default:
		r.said[from] = model
		if s.RunState != coordinator.Cooldown && r.enough(s, model) {
			r.commit = model
			clear(r.holds)
			for id, said := range r.said {
				r.holds[id] = said == model
			}
		}
	}
	if s.Epoch.Commit != r.commit {
		c.Violate(CommitKept, "the intermediate checkpoint has step %d (%x), but the reports require step %d (%x)",
			s.Epoch.Commit.Step, s.Epoch.Commit.Digest[:4], r.commit.Step, r.commit.Digest[:4])
	}
	if want, known := c.chain.digest(r.commit.Step); known && r.commit.Step != 0 && want != r.commit.Digest {
		c.Violate(CheckpointTrue, "step %d: the intermediate checkpoint is %x, but the counted results produce %x", r.commit.Step, r.commit.Digest[:4], want[:4])
	}
}

// enough reports whether two thirds of the voting members, and a third of the epoch's first
// members, reported a model.
func (r *reports) enough(s *coordinator.State, model coordinator.Recorded) bool {
	voters, count := 0, 0
	for _, m := range slices.Concat(s.Epoch.Clients, s.Epoch.Exited) {
		said := r.said[m.ID]
		if m.State == coordinator.Healthy || m.State == coordinator.Withdrawn && said.Step == model.Step {
			voters++
			if said == model {
				count++
			}
		}
	}
	return count >= QuorumOf(voters) && 3*count >= s.Seats()
}

// epochOver checks the checkpoint of a completed epoch, and its holders.
func (c *Checker) epochOver(s *coordinator.State, before stateMark) {
	c.outvoted = c.isOutvoted(before.members)
	checkpoint, r := s.Model.Checkpoint, &c.reports
	recorded := coordinator.Recorded{Step: checkpoint.Step, Digest: checkpoint.Digest}
	if checkpoint == before.checkpoint {
		if r.commit.Step != 0 {
			c.Violate(CommitKept, "no checkpoint was recorded after step %d, despite an intermediate checkpoint of step %d", before.step-1, r.commit.Step)
		}
		return
	}
	count := 0
	for _, said := range r.said {
		if said == recorded {
			count++
		}
	}
	if recorded != r.commit && 3*count < before.seats { // the reports of an intermediate checkpoint were counted when it was made
		c.Violate(CheckpointTrue, "only %d of the epoch's %d first members reported the recorded checkpoint of step %d", count, before.seats, checkpoint.Step)
	}
	if checkpoint.Step != before.step-1 && recorded != r.commit {
		c.Violate(CheckpointTrue, "the checkpoint of step %d was recorded after step %d, but the intermediate checkpoint has step %d", checkpoint.Step, before.step-1, r.commit.Step)
	}
	if want, known := c.chain.digest(checkpoint.Step); known && want != checkpoint.Digest {
		c.Violate(CheckpointTrue, "step %d: the recorded checkpoint is %x, but the counted results produce %x", checkpoint.Step, checkpoint.Digest[:4], want[:4])
	}
	c.held(s, before, recorded)
}

// held checks the recorded holders among the members that continue to the next epoch: holders of
// the recorded model, and holders of an earlier intermediate checkpoint, which the state then lists
// as an earlier model.
func (c *Checker) held(s *coordinator.State, before stateMark, recorded coordinator.Recorded) {
	r := &c.reports
	if r.commit.Step != 0 && r.commit != recorded && !slices.Contains(s.Earlier, r.commit) {
		c.Violate(CommitKept, "the intermediate checkpoint of step %d is missing after the end of its epoch", r.commit.Step)
	}
	for _, m := range before.members {
		i := slices.IndexFunc(s.Pending, func(p coordinator.Client) bool { return p.ID == m.ID })
		if i < 0 || m.State != coordinator.Healthy {
			continue
		}
		holds := r.said[m.ID] == recorded
		if recorded == r.commit {
			holds = r.holds[m.ID]
		}
		if p := &s.Pending[i]; p.HoldsModel != holds || r.commit != recorded && r.holds[m.ID] && p.HoldsEarlier != r.commit.Step {
			c.Violate(CommitKept, "%s holds the model of step %d according to the state: %v, and an earlier model of step %d; it reported step %d, and the intermediate checkpoint has step %d",
				c.NameOf(m.ID), recorded.Step, p.HoldsModel, p.HoldsEarlier, r.said[m.ID].Step, r.commit.Step)
		}
	}
}

// fellBack checks that an epoch starts from the newest available model: the checkpoint if a member
// holds it, or else the newest model that a member holds or that was uploaded.
func (c *Checker) fellBack(s *coordinator.State, before stateMark) {
	after := s.Model.Checkpoint
	c.reports = reportsOf(s)
	if after == before.checkpoint {
		return
	}
	lost := before.checkpoint.Step - after.Step
	if !after.FromPeers() {
		lost = before.checkpoint.Step + 1 - s.OriginStep
	}
	for _, l := range before.gaps { // these steps were missing from the model
		if l.First >= s.OriginStep && l.Last <= before.checkpoint.Step && (!after.FromPeers() || l.First > after.Step) {
			lost -= l.Last - l.First + 1
		}
	}
	awaited := max(s.Config.WarmupTime, min(uint64(lost)*s.Config.MaxRoundTrainTime/16, 24*3600*1000))
	if waited := s.StateStart - before.start; before.start < s.StateStart && waited < awaited {
		c.Violate(CommitKept, "the run falls back from step %d to step %d after only %d ms, although holders of the newer model may still be restarting", before.checkpoint.Step, after.Step, waited)
	}
	if !slices.ContainsFunc(before.waited, func(m coordinator.Client) bool { return m.ProbationUntil != 0 || m.HoldsModel }) &&
		!slices.ContainsFunc(before.uploads, func(u coordinator.Upload) bool { return u.Step == after.Step }) {
		c.Violate(CommitKept, "the run falls back from step %d to step %d because of newcomers alone", before.checkpoint.Step, after.Step)
	}
	for _, m := range before.waited {
		if _, seated := s.Member(m.ID); !seated {
			continue
		}
		known := slices.ContainsFunc(before.earlier, func(r coordinator.Recorded) bool { return r.Step == m.HoldsEarlier })
		if m.HoldsModel || known && m.HoldsEarlier > after.Step {
			c.Violate(CommitKept, "the run falls back from step %d to step %d, but %s holds a newer model", before.checkpoint.Step, after.Step, c.NameOf(m.ID))
		}
	}
	for _, u := range before.uploads {
		if u.Tries < coordinator.MaxUploadTries && u.Step > after.Step {
			c.Violate(CommitKept, "the run falls back from step %d to step %d, but the model of step %d is available at %s", before.checkpoint.Step, after.Step, u.Step, u.Place)
		}
	}
}
