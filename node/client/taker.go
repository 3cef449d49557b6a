package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/keep"
)

// taker takes a snapshot of the model at the end of an epoch, for peers and for the disk.
type taker struct {
	tasks   *env.Tasks
	network env.Network
	folder  keep.Folder
	run     *view
	engine  *engine
	rounds  *roundStates
	models  *handover.Models
	saver   *keep.Saver
	store   *exchange.Store
	report  *reporter
	failed  func(step uint32, err error)

	// These fields describe a large model that is being written to the disk from the trainer's memory.
	// Peers get its parts from the file.
	lent  *keep.Lent // nil: none is being written
	of    *replica
	until time.Time
	free  bool   // the trainer has its memory back
	there func() // called when the model is on the disk and the trainer is free; nil: not on the disk yet
	slow  bool   // the disk did not accept a model in time, or failed: models are copied

	copying bool       // a copy is in progress
	late    [][32]byte // parts of models that were written too late; a copy in progress may contain the same parts
}

// take starts to take the model, unless it has started. The trainer must be idle. A large model is
// not copied unless there is no folder, or the disk is slow.
func (t *taker) take() {
	if t.lent != nil && t.of == t.rounds.replica {
		if t.tasks.Now().Before(t.until) {
			return
		}
		t.notPutDown(keep.ErrNotTaken)
	}
	trainer, lends := t.engine.trainer.(env.Lender)
	points := &t.rounds.points
	if lends && t.folder.Dir != "" && points.model > t.models.Large && !t.slow && len(points.disk.hung) == 0 {
		t.putDown(trainer)
	} else {
		t.copy()
	}
}

// copy takes a copy of the model.
func (t *taker) copy() {
	trainer, step, took := t.engine.trainer, t.rounds.replica.step, t.took()
	m := &handover.Model{Step: step, Source: "held"}
	t.copying = true
	t.engine.start(opSnapshot, 0, func(ctx context.Context) func() {
		snapshot, err := trainer.Snapshot(ctx)
		if err == nil {
			snapshot.Step = step
			err = snapshot.Validate()
		}
		if err == nil {
			err = m.Publish(ctx, t.tasks, handover.Idle, t.network.Lend, snapshot)
		}
		return func() {
			t.copying = false
			took(m, false, err)
			t.dropLate()
		}
	})
}

// took returns a function that handles the result of taking the model. lies means that the model is on
// the disk and has no tensors in memory.
func (t *taker) took() func(m *handover.Model, lies bool, err error) {
	replica := t.rounds.replica
	return func(m *handover.Model, lies bool, err error) {
		switch {
		case t.rounds.replica != replica:
			t.store.Drop(m.Blobs...)
		case err != nil:
			t.failed(m.Step, fmt.Errorf("take a snapshot: %w", err))
		default:
			t.models.Held = m
			t.saver.Take(keep.Model{Step: m.Step, Digest: m.Digest, Snapshot: m.Snapshot, Lies: lies})
			t.models.Share(m, t.run.state.Model.Checkpoint.Digest)
			if t.run.state.Progress.Step <= t.run.state.Config.TotalSteps {
				t.engine.keepOptimizer(t.folder, m, t.report.log)
			}
		}
	}
}

// putDown writes the model from the trainer's memory while the trainer waits.
func (t *taker) putDown(trainer env.Lender) {
	step, took, lent, limit := t.rounds.replica.step, t.took(), keep.NewLent(), keep.LongestAhead(t.run.state)
	t.lent, t.of, t.until, t.free, t.there = lent, t.rounds.replica, t.tasks.Now().Add(limit), false, nil
	m, facts := &handover.Model{Step: step, Source: "held"}, keep.FactsAfter(t.run.state, step)
	t.tasks.Spawn(func(ctx context.Context) func() {
		begun := t.tasks.Now()
		err := t.tasks.AtDisk(func() error {
			return recovered(func() error {
				return t.folder.SaveLent(ctx, lent, facts, func(_ checkpoint.Snapshot, dir string) ([32]byte, error) {
					err := t.models.PublishFrom(ctx, m, handover.Idle, dir)
					return m.Digest, err
				})
			})
		})
		seconds := t.tasks.Now().Sub(begun).Seconds()
		return func() {
			switch {
			case t.lent != lent: // the model was copied meanwhile
				t.dropLate(m.Blobs...)
			case errors.Is(err, keep.ErrNotTaken): // the task of the trainer returns the reason
			case err != nil:
				t.store.Drop(m.Blobs...)
				t.notPutDown(err)
			default:
				t.report.log.Debug("wrote the model of the epoch", "dir", t.folder.Dir, "step", step, "seconds", seconds)
				t.there = func() { took(m, true, nil) }
				t.goOn()
			}
		}
	})
	t.engine.start(opSnapshot, 0, func(ctx context.Context) func() {
		err := recovered(func() error {
			return trainer.Lend(ctx, func(s checkpoint.Snapshot) error {
				limited, cancel := t.tasks.WithTimeout(ctx, limit)
				defer cancel()
				s.Step = step
				return lent.Offer(limited, s)
			})
		})
		lent.End()
		if err != nil && ctx.Err() != nil {
			err = ctx.Err()
		}
		return func() {
			switch {
			case t.lent != lent:
			case err != nil && t.there == nil:
				t.notPutDown(err)
			default: // even if lending failed, the model is on the disk
				t.free = true
				t.goOn()
			}
		}
	})
}

// dropLate drops parts that were written too late, unless a copy that contains them is in progress
// and not shared yet.
func (t *taker) dropLate(parts ...[32]byte) {
	if t.late = append(t.late, parts...); !t.copying {
		t.store.Drop(t.late...)
		t.late = nil
	}
}

// goOn completes taking the model, if the model is on the disk and the trainer is free.
func (t *taker) goOn() {
	if there := t.there; t.free && there != nil {
		t.lent, t.there = nil, nil
		there()
	}
}

// notPutDown gives up writing the model from the trainer's memory. From now on, take copies this model
// and the models of later epochs.
func (t *taker) notPutDown(err error) {
	t.lent.End()
	t.lent, t.there = nil, nil
	if errors.Is(err, context.Canceled) {
		return
	}
	t.slow = true
	t.report.log.Warn("cannot write the epoch's model to the disk directly; keeping a copy in memory (4 bytes per parameter)", "dir", t.folder.Dir, "err", err)
}
