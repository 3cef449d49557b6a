package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/modelsync"
)

// intermediates takes, hashes, writes and shares this client's copies of intermediate checkpoints, as
// models.Copies and models.Shares decide.
type intermediates struct {
	models.Copies
	shares models.Shares

	tasks  *env.Tasks
	jobs   *core.Jobs
	folder keep.Folder
	log    *slog.Logger
	save   func(f keep.Folder, s checkpoint.Snapshot, facts checkpoint.Facts) error // Folder.SaveIntermediate; replaced in tests
}

// described describes the copies.
func (c *intermediates) described() core.Copies {
	return core.Copies{Busy: c.Busy(), Finished: c.Finished(), Bytes: c.Bytes, Answered: c.Answered, Has: c.Has}
}

// taking is an intermediate checkpoint that is being taken.
type taking struct {
	step  uint32
	limit time.Duration // maximum time for lending
	lent  *keep.Lent    // nil: the model is copied
	copy  checkpoint.Snapshot
	took  time.Duration
	err   error
}

// begin starts to take the model after a step. If the trainer lends the model, begin also starts the task
// that writes the model and then hashes the file.
func (c *intermediates) begin(s *coordinator.State, trainer env.Trainer, step uint32) *taking {
	_, lends := trainer.(env.Lender)
	t := &taking{step: step, limit: models.LendTime(s)}
	w := c.Take(c.tasks.Now(), s, step, lends)
	if w == nil {
		return t
	}
	t.lent = keep.NewLent()
	lent, facts, dir := t.lent, keep.FactsAfter(s, step), c.folder.Intermediate(step)
	c.spawn(w, func(ctx context.Context, r *written) error {
		return recovered(func() (err error) {
			r.old = c.removeOld(&w.Kept)
			r.facts, err = lent.Save(ctx, dir, facts, func(s checkpoint.Snapshot, dir string) (digest [32]byte, err error) {
				err = quietly(s, func() error {
					r.digest, err = checkpoint.DigestDir(ctx, dir, nil)
					return err
				})
				return r.digest, err
			})
			return err
		})
	})
	return t
}

// written is the result of hashing or writing an intermediate checkpoint.
type written struct {
	digest [32]byte         // zero if an existing copy was written
	facts  checkpoint.Facts // of a lent model
	took   time.Duration
	old    error // of removing old intermediate checkpoints
	err    error
}

// spawn starts the task that writes a model.
func (c *intermediates) spawn(w *models.Write, write func(ctx context.Context, r *written) error) {
	w.Task = spawn(c.tasks, c.jobs, core.WriteIntermediate{Step: w.Step}, func(ctx context.Context) (r written) {
		begun := c.tasks.Now()
		r.err = c.tasks.AtDisk(func() error { return write(ctx, &r) })
		r.took = c.tasks.Now().Sub(begun)
		return r
	}, func(r written) { c.wrote(w, r, true) }, func(r written) { c.wrote(w, r, false) })
}

// take takes the model, in the task that applied the step, before the weights change again.
func (t *taking) take(ctx context.Context, tasks *env.Tasks, trainer env.Trainer) {
	begun := tasks.Now()
	defer func() { t.took = tasks.Now().Sub(begun) }()
	if t.lent == nil {
		t.err = recovered(func() (err error) {
			t.copy, err = trainer.Snapshot(ctx)
			t.copy.Step = t.step
			return err
		})
		return
	}
	t.err = lend(ctx, tasks, trainer.(env.Lender), t.lent, t.step, t.limit)
}

// lend lends the model after a step to the task that writes it to the disk, for at most limit.
func lend(ctx context.Context, tasks *env.Tasks, trainer env.Lender, lent *keep.Lent, step uint32, limit time.Duration) error {
	defer lent.End()
	err := recovered(func() error {
		return trainer.Lend(ctx, func(s checkpoint.Snapshot) error {
			limited, cancel := tasks.WithTimeout(ctx, limit)
			defer cancel()
			s.Step = step
			return lent.Offer(limited, s)
		})
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// abandon cancels taking the model.
func (t *taking) abandon() {
	if t != nil && t.lent != nil {
		t.lent.End()
	}
}

// taken handles the result. An error means that there is no intermediate checkpoint after this
// step.
func (c *intermediates) taken(t *taking, s *coordinator.State) error {
	c.log.Debug("the trainer waited for an intermediate checkpoint", "step", t.step, "seconds", t.took.Seconds())
	switch {
	case t.err != nil && t.lent != nil && !errors.Is(t.err, context.Canceled):
		c.NotLent(s)
	case t.err != nil:
	case t.lent == nil:
		c.take(t.step, t.copy, s)
	}
	return t.err
}

// takeNow takes the model after the newest applied step, while the trainer is otherwise idle.
func (c *intermediates) takeNow(v *view, e *engine, step uint32, failed func(error)) {
	trainer := e.trainer
	t := c.begin(v.state, trainer, step)
	start(e, core.Snapshot{Step: step}, func(ctx context.Context) *taking {
		t.take(ctx, c.tasks, trainer)
		return t
	}, func(t *taking) {
		if err := c.taken(t, v.state); err != nil {
			failed(err)
		}
	}, nil)
}

// skipped returns a function that logs why there is no intermediate checkpoint of a step.
func (c *intermediates) skipped(step uint32) func(error) {
	return func(err error) { c.log.Warn("skipping an intermediate checkpoint", "step", step, "err", err) }
}

// take hashes a copy of the model after a step, concurrently with the training, and writes it to
// the disk.
func (c *intermediates) take(step uint32, taken checkpoint.Snapshot, s *coordinator.State) {
	h := c.Hash(s, step, taken)
	if h == nil {
		return
	}
	facts, work := keep.FactsAfter(s, step), quietly
	if h.Urgent {
		work = func(_ checkpoint.Snapshot, do func() error) error { return recovered(do) }
	}
	spawn(c.tasks, c.jobs, core.Hash{Step: step}, func(context.Context) (r written) {
		begun := c.tasks.Now()
		r.err = work(taken, func() error {
			if err := taken.Validate(); err != nil {
				return err
			}
			r.digest = taken.Manifest().Digest()
			return nil
		})
		r.took = c.tasks.Now().Sub(begun)
		return r
	}, func(r written) {
		if r.err != nil {
			c.log.Error("intermediate checkpoint skipped; training continues", "step", step, "err", r.err)
		} else {
			c.log.Debug("took an intermediate checkpoint", "step", step, "digest", hexOf(r.digest)[:16], "seconds", r.took.Seconds(), "copied", true)
		}
		facts.Digest = hexOf(r.digest)
		h.Digest, h.Facts = r.digest, facts
		c.write(c.Hashed(c.tasks.Now(), h, r.err == nil))
	}, func(written) { c.Hashed(c.tasks.Now(), h, false) })
}

// tend writes copies that exist only in memory, and removes copies that are no longer needed. shared
// reports whether this client shares the run's checkpoint.
func (c *intermediates) tend(s *coordinator.State, shared bool) {
	now := c.tasks.Now()
	if kept := c.Trim(now, s, shared); kept != nil {
		c.tasks.Spawn(func(context.Context) func() {
			err := c.tasks.AtDisk(func() error { return c.removeOld(kept) })
			return func() { c.warnOf(err) }
		})
	}
	if w := c.Overdue(now, c.jobs.Wanted); w != nil {
		became := "is kept in memory only"
		if w.Lent {
			became = "is left out"
		}
		c.log.Error("the disk does not answer: the intermediate checkpoint "+became+"; training continues", "step", w.Step, "dir", c.folder.Dir)
	}
	c.write(c.Next(now, s))
}

// write removes folders that are no longer needed, and then writes a copy. It does nothing if w is
// nil.
func (c *intermediates) write(w *models.Write) {
	if w == nil {
		return
	}
	taken, facts := *w.Memory, w.Facts
	c.spawn(w, func(_ context.Context, r *written) error {
		return quietly(taken, func() error {
			r.old = c.removeOld(&w.Kept)
			return c.save(c.folder, taken, facts)
		})
	})
}

// wrote handles the result of writing a copy. wanted reports whether the client still wants the
// copy.
func (c *intermediates) wrote(w *models.Write, r written, wanted bool) {
	c.warnOf(r.old)
	delayed := !w.First
	if w.Lent {
		w.Digest, w.Facts = r.digest, r.facts
	}
	c.Written(c.tasks.Now(), w, r.err, wanted)
	switch {
	case w.Lent && (!wanted || errors.Is(r.err, keep.ErrNotTaken)):
	case w.Lent && r.err != nil:
		c.log.Error("intermediate checkpoint skipped; training continues", "step", w.Step, "err", r.err)
	case w.Lent:
		c.log.Debug("took an intermediate checkpoint", "step", w.Step, "digest", r.facts.Digest[:16], "seconds", r.took.Seconds(), "copied", false)
	case r.err != nil:
		c.log.Error("intermediate checkpoint only in memory; training continues", "step", w.Step, "retry_in", c.Pause, "err", r.err)
	default:
		if uint64(c.Bytes) > c.Large {
			c.tasks.Spawn(modelsync.GiveBack)
		}
		if delayed {
			c.log.Info("wrote the intermediate checkpoint to the disk after a delay", "step", w.Step)
		}
	}
}

// removeOld removes the folders of intermediate checkpoints that need not stay.
func (c *intermediates) removeOld(kept *models.Kept) error {
	return c.folder.DropIntermediates(func(step uint32) bool { return kept.Keeps(c.tasks.Now(), step) })
}

// warnOf logs an error of removing old intermediate checkpoints.
func (c *intermediates) warnOf(err error) {
	if err != nil {
		c.log.Warn("cannot remove old intermediate checkpoints", "err", err)
	}
}

// add adds the run's intermediate checkpoint, which this client obtained.
func (c *intermediates) add(m *modelsync.Model) {
	added := models.Copy{Recorded: coordinator.Recorded{Step: m.Step, Digest: m.Digest}}
	if m.Source != modelsync.FromDisk {
		taken := m.Snapshot // stays available if m releases its tensors
		added.Memory = &taken
	}
	c.Add(added)
}

// publish lets peers fetch a copy: from memory, or from its folder.
func (c *intermediates) publish(ctx context.Context, p models.Copy, m *modelsync.Model, from *modelsync.Models, network env.Network) error {
	if p.Memory != nil {
		return m.Publish(ctx, c.tasks, modelsync.Beside, network.Lend, *p.Memory)
	}
	dir := c.folder.Intermediate(p.Step)
	err := c.tasks.AtDisk(func() error { return from.PublishFrom(ctx, m, modelsync.Beside, dir) })
	if err == nil && m.Digest != p.Digest {
		err = fmt.Errorf("%w: %s differs from the written model", checkpoint.ErrInvalid, dir)
	}
	return err
}
