package client

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
)

// folderOf returns the checkpoint folder of a step.
func (o *Options) folderOf(step uint32) string {
	return filepath.Join(o.CheckpointDir, checkpointPrefix(o.RunID)+strconv.FormatUint(uint64(step), 10))
}

// facts says where in the run the model stands. Found is false when the run has gone on
// so far that its state does not tell any more.
func (n *Node) facts(m *heldModel) (f checkpoint.Facts, found bool) {
	at := n.state.Progress
	f = checkpoint.Facts{
		RunID: n.RunID, Epoch: at.Epoch, Step: m.step, DataIndex: at.DataIndex,
		MaxSeqLen: n.state.Model.MaxSeqLen, Digest: hexOf(m.digest),
	}
	found = at.Step == m.step+1
	for _, round := range n.state.Epoch.Rounds { // the next round may run already, on data of its own
		if round.Step == m.step+1 {
			f.DataIndex, found = round.DataIndex, true
		}
	}
	return f, found
}

// fromHandedOver gets a model that members hand over: from the client's own checkpoint
// folder, by results from an earlier one, from members, or from the archive. The digest decides which model is the right one.
func (o *obtaining) fromHandedOver(ctx context.Context) (checkpoint.Snapshot, error) {
	if snapshot, err := o.fromDisk(); err == nil {
		return snapshot, nil
	} else if !errors.Is(err, checkpoint.ErrNoFacts) {
		o.log.Warn("the saved checkpoint cannot be used: asking members", "err", err)
	}
	if !o.noReplay {
		snapshot, err := o.fromResults(ctx)
		if err == nil || errors.Is(err, errReplay) || ctx.Err() != nil {
			return snapshot, err
		}
		if !errors.Is(err, errNoBase) {
			o.log.Info("the whole model is fetched", "why", err)
		}
	}
	snapshot, err := o.fromMembers(ctx)
	if o.Archive == nil || !errors.Is(err, errNoHolder) {
		return snapshot, err
	}
	o.log.Warn("no member gives the model: looking for it in archives", "err", err)
	for _, at := range append([]coordinator.Place{{}}, o.places...) {
		snapshot, failed := o.Archive(ctx, o.checkpoint, at)
		if failed == nil {
			failed = o.adopt(snapshot, "archive")
		}
		if failed == nil {
			return o.model.snapshot, nil
		}
		if at != (coordinator.Place{}) {
			failed = fmt.Errorf("at %s: %w", at, failed)
		}
		err = fmt.Errorf("%w; in archives: %w", err, failed)
	}
	return checkpoint.Snapshot{}, err
}

// fromDisk reads the model from the checkpoint folder if it was saved there.
func (o *obtaining) fromDisk() (checkpoint.Snapshot, error) {
	if o.CheckpointDir == "" {
		return checkpoint.Snapshot{}, checkpoint.ErrNoFacts
	}
	dir := o.folderOf(o.checkpoint.Step)
	facts, err := checkpoint.ReadFacts(dir)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	if facts.Digest != hexOf(o.checkpoint.Digest) {
		return checkpoint.Snapshot{}, fmt.Errorf("%s holds another model of that step", dir)
	}
	snapshot, err := checkpoint.ReadDir(dir)
	if err != nil {
		return checkpoint.Snapshot{}, err
	}
	if err := o.adopt(snapshot, "disk"); err != nil {
		return checkpoint.Snapshot{}, fmt.Errorf("%s: %w", dir, err)
	}
	return o.model.snapshot, nil
}

// adopt takes a snapshot for the wanted model if it is that, bit for bit, and shares it.
func (o *obtaining) adopt(snapshot checkpoint.Snapshot, source string) error {
	if err := snapshot.Validate(); err != nil {
		return err
	}
	if digest := snapshot.Manifest().Digest(); digest != o.checkpoint.Digest {
		return fmt.Errorf("%w: it has digest %s, the run wants %s", checkpoint.ErrInvalid, hexOf(digest)[:16], hexOf(o.checkpoint.Digest)[:16])
	}
	if err := o.model.publish(o.Network, snapshot); err != nil {
		return err
	}
	o.model.step, o.model.source = snapshot.Step, source
	return nil
}
