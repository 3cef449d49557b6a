package client

import (
	"github.com/psyche-go/psyche/core/coordinator"
)

// cooldown applies outstanding results, shares the model and reports its digest.
func (n *Node) cooldown() {
	n.engine.CancelTraining(none)
	if !n.closeEpoch() || n.models.Held == nil || !n.run.isMember() || n.models.Held.Step != n.run.state.Progress.Step-1 {
		return
	}
	if me, ok := n.run.state.Member(n.run.myself()); ok && me.Report.Step == n.run.state.Progress.Step-1 {
		return
	}
	if !n.saver.Ahead(n.run.state) && !n.member.Leave.Begun() {
		return
	}
	report := coordinator.ReportCheckpoint{Step: n.run.state.Progress.Step, Digest: n.models.Held.Digest}
	n.actions.submit("checkpoint", report, report, func() {
		n.report.log.Info("reported checkpoint", "step", report.Step-1, "digest", hexOf(report.Digest)[:16])
	})
}

// closeEpoch finishes an epoch whose rounds are over: it applies the last results, and takes and
// shares a snapshot of the model. It reports whether this work is complete, also for earlier epochs.
// The loop calls it until then, even if the run has moved to the next Warmup.
func (n *Node) closeEpoch() bool {
	r := n.rounds.replica
	if r == nil {
		return true
	}
	switch n.run.state.RunState {
	case coordinator.Warmup, coordinator.RoundTrain, coordinator.RoundWitness:
		if !r.closing && r.epoch == n.run.epoch() {
			return true
		}
	}
	r.closing = true
	n.engine.CancelTraining(none)
	n.engine.CancelRecomputation(true)
	last := r.step
	for step, rs := range n.rounds.of {
		if rs.EpochStart == r.epoch.StartStep {
			last = max(last, step)
		}
	}
	if known, recorded := n.run.recordedOf(r); known { // later steps are lost, and the members that had their results may have left
		last = max(r.step, min(last, recorded))
	}
	if !n.finalize(max(last, r.has)) {
		return n.rounds.replica == nil
	}
	if n.models.Held == nil {
		if n.engine.Idle() {
			n.models.snapshotter.take()
		}
		return false
	}
	n.rounds.replica = nil
	n.engine.leave()
	return true
}
