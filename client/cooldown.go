package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

const opSnapshot = "snapshot"

// cooldown applies what is outstanding, shares the model and reports its digest.
func (n *Node) cooldown() {
	n.cancelTraining(0)
	if !n.closeEpoch() || n.model == nil || !n.isMember() || n.model.step != n.state.Progress.Step-1 {
		return
	}
	me := coordinator.ClientID(n.id)
	if slices.ContainsFunc(n.state.Epoch.Reports, func(r coordinator.CheckpointReport) bool { return r.Client == me }) {
		return
	}
	report := coordinator.ReportCheckpoint{Step: n.state.Progress.Step, Digest: n.model.digest}
	n.submit("checkpoint", report, report, func() {
		n.log.Info("reported checkpoint", "step", report.Step-1, "digest", hexOf(report.Digest)[:16])
	})
}

// closeEpoch finishes an epoch whose rounds are over: the last results are applied, and
// a snapshot of the model is taken and shared. It reports whether nothing of an earlier
// epoch is outstanding. It goes on while the run moves to the next Warmup.
func (n *Node) closeEpoch() bool {
	r := n.replica
	if r == nil {
		return true
	}
	switch n.state.RunState {
	case coordinator.Warmup, coordinator.RoundTrain, coordinator.RoundWitness:
		if !r.closing && r.epoch == n.epoch() {
			return true
		}
	}
	r.closing = true
	n.cancelTraining(0)
	last := r.step
	for step, l := range n.rounds {
		if l.epochStart == r.epoch.startStep {
			last = max(last, step)
		}
	}
	if !n.settle(last) {
		return n.replica == nil
	}
	if n.model == nil {
		if n.op == nil {
			n.takeSnapshot()
		}
		return false
	}
	n.replica = nil
	return true
}

// takeSnapshot makes the epoch's model available to peers, and to the disk.
func (n *Node) takeSnapshot() {
	replica, trainer, step := n.replica, n.trainer, n.replica.step
	m := &heldModel{step: step, source: "held"}
	n.start(opSnapshot, 0, func(ctx context.Context) func() {
		snapshot, err := trainer.Snapshot(ctx)
		if err == nil {
			snapshot.Step = step
			err = snapshot.Validate()
		}
		if err == nil {
			err = m.publish(n.Network, snapshot)
		}
		return func() {
			switch {
			case n.replica != replica:
				n.dropBlobs(m.blobs)
			case err != nil:
				n.applyFailed(step, fmt.Errorf("take a snapshot: %w", err))
			default:
				n.model, n.unsaved = m, m
				n.share(m)
			}
		}
	})
}

// publish gives the parts of a snapshot to the blob store.
func (m *heldModel) publish(blobs Blobs, snapshot checkpoint.Snapshot) error {
	manifest := snapshot.Manifest()
	m.snapshot, m.manifest = snapshot, manifest.Encode()
	m.digest = blake3Sum(m.manifest)
	put := func(data []byte) error {
		hash, err := blobs.Put(data)
		if err == nil {
			m.blobs = append(m.blobs, hash)
		}
		return err
	}
	for _, file := range snapshot.Files {
		if err := put(file.Data); err != nil {
			return fmt.Errorf("share %s: %w", file.Name, err)
		}
	}
	for _, tensor := range snapshot.Tensors {
		if err := put(tensor.Data); err != nil {
			return fmt.Errorf("share %s: %w", tensor.Name, err)
		}
	}
	return nil
}

// finish ends the client when the run is over and the last checkpoint is saved.
func (n *Node) finish() {
	if !n.closeEpoch() || n.saves > 0 || n.unsaved != nil || n.op != nil {
		return
	}
	c := n.state.Model.Checkpoint
	done := event.Finished{Epoch: n.state.Progress.Epoch, Step: c.Step}
	switch {
	case n.model == nil:
		n.log.Warn("the run is finished; this client does not hold the final model")
	case fromPeers(c) && n.model.digest != c.Digest:
		n.emit(event.Desynchronised{Epoch: done.Epoch, Step: n.model.step, Reason: "the run recorded another final model"})
		n.fail(fmt.Errorf("%w: digest %s here, %s recorded", ErrDesynchronised, hexOf(n.model.digest), hexOf(c.Digest)))
		return
	default:
		done.Step, done.Digest = n.model.step, hexOf(n.model.digest)
	}
	if n.saveErr != nil {
		n.fail(errors.Join(errors.New("the final checkpoint was not saved"), n.saveErr))
		return
	}
	n.log.Info("finished", "step", done.Step, "digest", done.Digest)
	n.emit(done)
	n.ended = true
}
