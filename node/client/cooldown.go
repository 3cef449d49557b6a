package client

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/keep"
)

// cooldown applies what is outstanding, shares the model and reports its digest.
func (n *Node) cooldown() {
	n.engine.cancelTraining(none)
	if !n.closeEpoch() || n.models.Held == nil || !n.run.isMember() || n.models.Held.Step != n.run.state.Progress.Step-1 {
		return
	}
	if me, ok := n.run.state.Member(n.run.myself()); ok && me.Report.Step == n.run.state.Progress.Step-1 {
		return
	}
	if !n.saver.Ahead(n.run.state) && !n.seat.leaving.begun() {
		return
	}
	report := coordinator.ReportCheckpoint{Step: n.run.state.Progress.Step, Digest: n.models.Held.Digest}
	n.actions.submit("checkpoint", report, report, func() {
		n.report.log.Info("reported checkpoint", "step", report.Step-1, "digest", hexOf(report.Digest)[:16])
	})
}

// closeEpoch finishes an epoch whose rounds are over: the last results are applied, and
// a snapshot of the model is taken and shared. It reports whether nothing of an earlier
// epoch is outstanding. It goes on while the run moves to the next Warmup.
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
	n.engine.cancelTraining(none)
	n.engine.abandonRecomputation()
	last := r.step
	for step, l := range n.rounds.of {
		if l.EpochStart == r.epoch.startStep {
			last = max(last, step)
		}
	}
	if known, recorded := n.run.recordedOf(r); known { // later steps lapsed, and those who had their results may be gone
		last = max(r.step, min(last, recorded))
	}
	if !n.settle(max(last, r.has)) {
		return n.rounds.replica == nil
	}
	if n.models.Held == nil {
		if n.engine.op == nil && !n.putsDown() {
			n.takeSnapshot()
		}
		return false
	}
	n.rounds.replica = nil
	return true
}

// recordedOf returns the newest step that is part of the run's model after a replica's epoch, once that
// is known: when the epoch's Cooldown is over.
func (v *view) recordedOf(r *replica) (known bool, step uint32) {
	s := v.state
	switch s.RunState {
	case coordinator.RoundTrain, coordinator.RoundWitness, coordinator.Cooldown:
		if s.Epoch.StartStep == r.epoch.startStep {
			return false, 0
		}
	}
	if c := s.Model.Checkpoint; c.FromPeers() {
		return true, c.Step
	}
	return true, s.OriginStep - 1
}

// takeSnapshot makes the epoch's model available to peers, and to the disk.
func (n *Node) takeSnapshot() {
	trainer, step, took := n.engine.trainer, n.rounds.replica.step, n.tookModel()
	m := &handover.Model{Step: step, Source: "held"}
	n.engine.start(opSnapshot, 0, func(ctx context.Context) func() {
		snapshot, err := trainer.Snapshot(ctx)
		if err == nil {
			snapshot.Step = step
			err = snapshot.Validate()
		}
		if err == nil {
			err = m.Publish(ctx, n.tasks, handover.Idle, n.Network.Lend, snapshot)
		}
		return func() { took(m, false, err) }
	})
}

// tookModel returns what follows when the model of the epoch that ends was taken, and whether it lies on the disk.
func (n *Node) tookModel() func(m *handover.Model, lies bool, err error) {
	replica := n.rounds.replica
	return func(m *handover.Model, lies bool, err error) {
		switch {
		case n.rounds.replica != replica:
			n.store.Drop(m.Blobs...)
		case err != nil:
			n.applyFailed(m.Step, fmt.Errorf("take a snapshot: %w", err))
		default:
			n.models.Held = m
			n.saver.Take(keep.Model{Step: m.Step, Digest: m.Digest, Snapshot: m.Snapshot, Lies: lies})
			n.models.Share(m, n.run.state.Model.Checkpoint.Digest)
			if n.run.state.Progress.Step <= n.run.state.Config.TotalSteps {
				n.engine.keepOptimizer(n.folder(), m, n.report.log)
			}
		}
	}
}
