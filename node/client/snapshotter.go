package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/modelsync"
)

// snapshotter takes a snapshot of the model at the end of an epoch, for peers and for the disk.
type snapshotter struct {
	network env.Network
	run     *view
	engine  *engine
	rounds  *roundStates
	models  *modelsync.Models
	copies  *models.Copies
	saver   *keep.Saver
	store   *exchange.Store
	failed  func(step uint32, err error)

	// These fields describe a large model that is being written to the disk from the trainer's
	// memory. Peers get its parts from the file.
	lent   *keep.Lent // nil: none is being written
	lends  core.ID    // work of the trainer that lends it
	writes core.ID    // task that writes it
	until  time.Time
	free   bool             // the trainer has its memory back
	there  *modelsync.Model // the model, if it is on the disk and the trainer does not have its memory back; else nil
	slow   bool             // the disk did not accept a model in time, or failed: models are copied

	copying bool       // a copy is in progress
	late    [][32]byte // parts of models that were written too late; a copy in progress may contain the same parts
}

// take starts to take the model, unless it has started. The trainer must be idle. A large model is
// not copied unless there is no folder, or the disk is slow.
func (t *snapshotter) take() {
	if t.lent != nil {
		if t.saver.Tasks.Now().Before(t.until) {
			return
		}
		t.notPutDown(keep.ErrNotTaken)
	}
	trainer, lends := t.engine.trainer.(env.Lender)
	if lends && t.copies.Folder && t.copies.Model > t.models.Large && !t.slow && !t.copies.Hangs() {
		t.putDown(trainer)
	} else {
		t.copy()
	}
}

// copy takes a copy of the model.
func (t *snapshotter) copy() {
	trainer, step := t.engine.trainer, t.rounds.replica.Step
	m := &modelsync.Model{Step: step, Source: "held"}
	t.copying = true
	start(t.engine, core.Snapshot{Step: step}, func(ctx context.Context) error {
		snapshot, err := trainer.Snapshot(ctx)
		if err == nil {
			snapshot.Step = step
			err = snapshot.Validate()
		}
		if err == nil {
			err = m.Publish(ctx, t.saver.Tasks, modelsync.Idle, t.network.Lend, snapshot)
		}
		return err
	}, func(err error) {
		t.copying = false
		if err != nil {
			t.failed(step, fmt.Errorf("take a snapshot: %w", err))
		} else {
			t.took(m, false)
		}
		t.dropLate()
	}, func(error) {
		t.copying = false
		t.dropLate(m.Blobs...)
	})
}

// took keeps a model that was taken. stored means that the model is on the disk and has no tensors in
// memory.
func (t *snapshotter) took(m *modelsync.Model, stored bool) {
	t.models.Held = m
	t.saver.Take(keep.Model{Step: m.Step, Digest: m.Digest, Snapshot: m.Snapshot, Stored: stored})
	t.models.Share(m, t.run.state.Model.Checkpoint.Digest)
	if t.run.state.Progress.Step <= t.run.state.Config.TotalSteps {
		t.engine.keepOptimizer(t.saver, m)
	}
}

// putDown writes the model from the trainer's memory while the trainer waits.
func (t *snapshotter) putDown(trainer env.Lender) {
	step, lent, limit := t.rounds.replica.Step, keep.NewLent(), keep.LongestAhead(t.run.state)
	t.lent, t.until, t.free, t.there = lent, t.saver.Tasks.Now().Add(limit), false, nil
	m, facts := &modelsync.Model{Step: step, Source: "held"}, keep.FactsAfter(t.run.state, step)
	begun := t.saver.Tasks.Now()
	t.writes = spawn(t.saver.Tasks, t.engine.Jobs, core.Write{Step: step}, func(ctx context.Context) error {
		return t.saver.Tasks.AtDisk(func() error {
			return recovered(func() error {
				_, err := lent.Save(ctx, t.saver.Folder.Pending(step), facts, func(_ checkpoint.Snapshot, dir string) ([32]byte, error) {
					err := t.models.PublishFrom(ctx, m, modelsync.Idle, dir)
					return m.Digest, err
				})
				return err
			})
		})
	}, func(err error) {
		switch {
		case errors.Is(err, keep.ErrNotTaken): // the work of the trainer returns the reason
		case err != nil:
			t.store.Drop(m.Blobs...)
			t.notPutDown(err)
		default:
			t.saver.Log.Debug("wrote the model of the epoch", "dir", t.saver.Folder.Dir, "step", step, "seconds", t.saver.Tasks.Now().Sub(begun).Seconds())
			t.there = m
			t.goOn()
		}
	}, func(error) { t.dropLate(m.Blobs...) }) // the model was copied meanwhile, or is not the run's
	t.lends = start(t.engine, core.Snapshot{Step: step}, func(ctx context.Context) error {
		return lend(ctx, t.saver.Tasks, trainer, lent, step, limit)
	}, func(err error) {
		if err != nil && t.there == nil {
			t.notPutDown(err)
			return
		}
		t.free = true // even if lending failed, the model is on the disk
		t.goOn()
	}, nil)
}

// dropLate drops parts that were written too late, unless a copy that contains them is in progress
// and not shared yet.
func (t *snapshotter) dropLate(parts ...[32]byte) {
	if t.late = append(t.late, parts...); !t.copying {
		t.store.Drop(t.late...)
		t.late = nil
	}
}

// goOn completes taking the model, if the model is on the disk and the trainer is free.
func (t *snapshotter) goOn() {
	if m := t.there; t.free && m != nil {
		t.lent, t.there = nil, nil
		t.took(m, true)
	}
}

// notPutDown gives up writing the model from the trainer's memory. From now on, take copies this
// model and the models of later epochs.
func (t *snapshotter) notPutDown(err error) {
	t.lent.End()
	t.engine.Drop(t.lends)
	t.engine.Drop(t.writes)
	t.lent, t.there = nil, nil
	if errors.Is(err, context.Canceled) {
		return
	}
	t.slow = true
	t.saver.Log.Warn("cannot write the epoch's model to the disk directly; keeping a copy in memory (4 bytes per parameter)", "dir", t.saver.Folder.Dir, "err", err)
}

// leave gives up the model of a replica that the client leaves.
func (t *snapshotter) leave() {
	if t.there != nil {
		t.store.Drop(t.there.Blobs...)
	}
	t.lent, t.there = nil, nil
}
