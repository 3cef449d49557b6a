package client

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
)

// While a large model is written from the trainer's memory, the trainer waits for at most
// 1/lentPart of the time that members have to train a round, and at most lentTime.
const (
	lentPart = 10
	lentTime = 10 * time.Second
)

// lentLimit returns the time limit for a run.
func lentLimit(s *coordinator.State) time.Duration {
	return min(time.Duration(s.Config.MaxRoundTrainTime)*time.Millisecond/lentPart, lentTime)
}

// taking is an intermediate checkpoint that is being taken.
type taking struct {
	step  uint32
	lent  *keep.Lent    // nil: the model is copied
	limit time.Duration // time limit for lending

	copy checkpoint.Snapshot
	took time.Duration
	err  error
}

// begin decides how to take the model after a step. It does not copy a large model if there is a
// folder, but writes it from the trainer's memory while the trainer waits, and hashes the file
// afterwards. If the disk does not accept the model in time, the model is skipped, and later ones
// of the epoch are copied.
func (c *intermediates) begin(s *coordinator.State, trainer env.Trainer, step uint32) *taking {
	t := &taking{step: step, limit: lentLimit(s)}
	_, lends := trainer.(env.Lender)
	if !lends || c.folder.Dir == "" || c.model <= c.large || c.copies == s.Epoch.StartStep || c.leaving || c.disk.write != nil || len(c.disk.hung) > 0 {
		return t
	}
	t.lent = keep.NewLent()
	c.note(step, s)
	c.busy, c.size = true, int(c.model)
	lent, facts, folder, needed := t.lent, keep.FactsAfter(s, step), c.folder, c.soon(c.needed(s))
	w := &diskWrite{point: intermediate{Recorded: coordinator.Recorded{Step: step}}, until: c.tasks.Now().Add(diskTime(int(c.model))), awaited: true, lent: true}
	c.disk.write = w
	ended := func(r intermediateWrite) {
		c.warnOf(r.old)
		c.disk.done(w)
		c.endWrite(w, false)
	}
	w.task = spawn(c.tasks, c.jobs, core.WriteIntermediate{Step: step}, func(ctx context.Context) (r intermediateWrite) {
		begun := c.tasks.Now()
		r.err = c.tasks.AtDisk(func() error {
			return recovered(func() (err error) {
				r.old = folder.DropIntermediates(needed)
				r.facts, err = folder.SaveLentIntermediate(ctx, lent, facts, func(s checkpoint.Snapshot, dir string) (digest [32]byte, err error) {
					err = quietly(s, func() error {
						digest, err = checkpoint.DigestDir(ctx, dir, nil)
						return err
					})
					return digest, err
				})
				return err
			})
		})
		r.took = c.tasks.Now().Sub(begun)
		return r
	}, func(r intermediateWrite) {
		ended(r)
		switch {
		case errors.Is(r.err, keep.ErrNotTaken):
		case r.err != nil:
			c.report.log.Error("intermediate checkpoint skipped; training continues", "step", step, "err", r.err)
		default:
			point := intermediate{Recorded: coordinator.Recorded{Step: step}, facts: r.facts}
			_, _ = hex.Decode(point.Digest[:], []byte(r.facts.Digest))
			c.report.log.Debug("took an intermediate checkpoint", "step", step, "digest", r.facts.Digest[:16], "seconds", r.took.Seconds(), "copied", false)
			c.enter(point)
		}
	}, ended)
	return t
}

// intermediateWrite is the result of writing an intermediate checkpoint.
type intermediateWrite struct {
	facts checkpoint.Facts // of a lent model
	took  time.Duration
	old   error // of removing old intermediate checkpoints
	err   error
}

// take takes the model, in the task that applied the step, before the weights change again.
func (t *taking) take(ctx context.Context, tasks *env.Tasks, trainer env.Trainer) {
	begun := tasks.Now()
	defer func() { t.took = tasks.Now().Sub(begun) }()
	if t.lent == nil {
		t.copy, t.err = copyAfter(ctx, trainer, t.step)
		return
	}
	defer t.lent.End()
	t.err = recovered(func() error {
		return trainer.(env.Lender).Lend(ctx, func(s checkpoint.Snapshot) error {
			limited, cancel := tasks.WithTimeout(ctx, t.limit)
			defer cancel()
			s.Step = t.step
			return t.lent.Offer(limited, s)
		})
	})
	if t.err != nil && ctx.Err() != nil {
		t.err = ctx.Err()
	}
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
	c.report.log.Debug("the trainer waited for an intermediate checkpoint", "step", t.step, "seconds", t.took.Seconds())
	switch {
	case t.err != nil && t.lent != nil && !errors.Is(t.err, context.Canceled):
		c.copies = s.Epoch.StartStep
	case t.err != nil:
	case t.lent == nil:
		c.take(t.step, t.copy, s)
	}
	return t.err
}
