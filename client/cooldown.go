package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
				n.keepOptimizer(m)
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
	last := n.state.Progress.Step - 1 // every round up to it was held
	done := event.Finished{Epoch: n.state.Progress.Epoch, Step: n.state.Model.Checkpoint.Step, Closed: n.state.Closed && last < n.state.Config.TotalSteps}
	held := n.finalModel(last)
	switch held {
	case modelRecorded:
		done.Step, done.Digest = n.model.step, hexOf(n.model.digest)
	case modelUnrecorded:
		done.Step, done.Digest, done.Unrecorded = n.model.step, hexOf(n.model.digest), true
		n.log.Warn("too few members reported the final model for the run to record it; the one here has everything that the run counted", "step", last)
	case modelOld:
		n.log.Warn("this client does not hold the final model", "step", last)
	case modelOther:
		c := n.state.Model.Checkpoint
		n.emit(event.Desynchronised{Epoch: done.Epoch, Step: n.model.step, Reason: "the run recorded another final model"})
		n.fail(fmt.Errorf("%w: digest %s of step %d here, %s of step %d recorded", ErrDesynchronised, hexOf(n.model.digest), n.model.step, hexOf(c.Digest), c.Step))
		return
	}
	if n.saveErr != nil {
		n.fail(errors.Join(errors.New("the final checkpoint was not saved"), n.saveErr))
		return
	}
	message := "the run is finished"
	if done.Closed {
		message = "the run was closed by its authority before its last step"
	}
	if held == modelNone {
		n.log.Warn(message+"; this client took over no model of it", "step", done.Step, "of", n.state.Config.TotalSteps, "the model", n.whereModelLies())
	} else {
		n.log.Info(message, "step", done.Step, "of", n.state.Config.TotalSteps, "digest", done.Digest)
	}
	n.emit(done)
	n.ended = true
}

// whereModelLies says where the run's newest recorded model can be got.
func (n *Node) whereModelLies() string {
	c := n.state.Model.Checkpoint
	if !fromPeers(c) {
		return "none was recorded but the one that the run began with"
	}
	digest := "digest " + hexOf(c.Digest)[:16]
	if n.heldOnDisk() {
		return digest + ", in " + n.folderOf(c.Step)
	}
	var places []string
	for _, u := range n.state.UploadsOf(c.Digest) {
		places = append(places, u.Place.String())
	}
	if len(places) == 0 {
		return digest + ", in the --checkpoint-dir of members that saved it; none said that it uploaded it"
	}
	return digest + ", as members say at " + strings.Join(places, " or ")
}

// finalModel is what the model held here is to a run that is over.
type finalModel uint8

const (
	modelRecorded   finalModel = iota // the one that the run recorded
	modelUnrecorded                   // of the last round, which the run recorded no model of
	modelOld                          // one before the last round
	modelOther                        // not the run's
	modelNone                         // there is none here
)

// finalModel compares the model held here with a finished run whose last round is given.
// Every counted result is in a model of the last round; that too few others were left to
// report theirs does not make it a wrong one.
func (n *Node) finalModel(last uint32) finalModel {
	c := n.state.Model.Checkpoint
	switch {
	case n.model == nil:
		return modelNone
	case !fromPeers(c) && n.model.origin == c, fromPeers(c) && n.model.digest == c.Digest:
		return modelRecorded
	case fromPeers(c) && c.Step == n.model.step, n.model.step > last:
		return modelOther
	case n.model.step < last:
		return modelOld
	}
	return modelUnrecorded
}
