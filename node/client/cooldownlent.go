package client

import (
	"context"
	"errors"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/keep"
)

// putDown is the large model of an epoch that ends on its way to the disk, from its trainer's memory. Nobody else needs that: what
// is shared lies in the file.
type putDown struct {
	lent  *keep.Lent // nil: none is on its way
	of    *replica
	until time.Time
	free  bool   // the trainer has it back
	there func() // is called when it is there and the trainer is free; nil: it is not there yet
	slow  bool   // the disk took one too late, or not at all: models are copied
}

// downTime is how long an epoch waits at most for the disk to take its model, before that is copied.
func downTime(s *coordinator.State) time.Duration {
	return min(30*time.Second, time.Duration(s.Config.CooldownTime)*time.Millisecond/2)
}

// putsDown reports whether the model of the epoch that ends is on its way to the disk, and begins to put it there. It is false
// where that cannot be: there is no folder, the model is small, the disk is slow.
func (n *Node) putsDown() bool {
	d := &n.down
	if d.lent != nil && d.of == n.rounds.replica {
		if n.tasks.Now().Before(d.until) {
			return true
		}
		n.downFailed(keep.ErrNotTaken)
		return false
	}
	trainer, lends := n.engine.trainer.(env.Lender)
	points := &n.rounds.points
	if !lends || n.CheckpointDir == "" || points.model <= n.models.Large || d.slow || len(points.disk.hung) > 0 {
		return false
	}
	step, took := n.rounds.replica.step, n.tookModel()
	lent := keep.NewLent()
	*d = putDown{lent: lent, of: n.rounds.replica, until: n.tasks.Now().Add(downTime(n.run.state))}
	m := &handover.Model{Step: step, Source: "held"}
	folder, facts, limit := n.folder(), keep.FactsAfter(n.run.state, step), downTime(n.run.state)
	n.tasks.Spawn(func(ctx context.Context) func() {
		begun := n.tasks.Now()
		err := n.tasks.AtDisk(func() error {
			return recovered(func() error {
				return folder.SaveLent(ctx, lent, facts, func(_ checkpoint.Snapshot, dir string) ([32]byte, error) {
					err := n.models.PublishFrom(ctx, m, handover.Idle, dir)
					return m.Digest, err
				})
			})
		})
		seconds := n.tasks.Now().Sub(begun).Seconds()
		return func() {
			switch {
			case d.lent != lent: // it was copied meanwhile
				n.store.Drop(m.Blobs...)
			case errors.Is(err, keep.ErrNotTaken): // the task of the trainer tells why
			case err != nil:
				n.store.Drop(m.Blobs...)
				n.downFailed(err)
			default:
				n.report.log.Debug("put the model of the epoch down", "step", step, "seconds", seconds)
				d.there = func() { took(m, true, nil) }
				d.end()
			}
		}
	})
	n.engine.start(opSnapshot, 0, func(ctx context.Context) func() {
		err := recovered(func() error {
			return trainer.Lend(ctx, func(s checkpoint.Snapshot) error {
				limited, cancel := n.tasks.WithTimeout(ctx, limit)
				defer cancel()
				s.Step = step
				return lent.Offer(limited, s)
			})
		})
		lent.End()
		return func() {
			switch {
			case d.lent != lent:
			case err != nil && d.there == nil:
				n.downFailed(err)
			default: // whatever became of lending it, when it is there
				d.free = true
				d.end()
			}
		}
	})
	return true
}

// end goes on when both have done their part.
func (d *putDown) end() {
	if there := d.there; d.free && there != nil {
		*d = putDown{}
		there()
	}
}

// downFailed has the model copied, and those of later epochs.
func (n *Node) downFailed(err error) {
	d := &n.down
	d.lent.End()
	*d = putDown{slow: !errors.Is(err, context.Canceled)}
	if d.slow {
		n.report.log.Warn("the model of the epoch is copied, and takes 4 bytes for each parameter: the disk did not take it", "dir", n.CheckpointDir, "err", err)
	}
}
