package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/modelsync"
)

// maxLent is the maximum number of intermediate checkpoints that are shared at the same time: the
// newest, and an older one that a member is still fetching.
const maxLent = 2

// servedModels contains the intermediate checkpoints that this client serves to members that return
// to the running epoch. Each checkpoint takes the memory of a model, unless it is large and on the
// disk. Therefore this client shares a checkpoint only when a member requests it, and only for the
// time that getting a model may take. If a third checkpoint is requested, a checkpoint that no
// member has started to fetch is dropped, or else the oldest. Repeated requests for a checkpoint
// cause only one read from the disk.
type servedModels struct {
	lent   []lent // in order of age, oldest first
	busy   bool
	failed [32]byte // digest of the model that could not be read; zero: none
	narrow uint32   // first step of an epoch in which sharing would take memory that results need; 0: none
}

// lent is a shared intermediate checkpoint.
type lent struct {
	digest [32]byte
	until  time.Time
}

// stop ends sharing for the rest of the epoch, because the results of running rounds need the
// memory.
func (h *servedModels) stop(epochStart uint32) {
	h.narrow = epochStart
	for i := range h.lent {
		h.lent[i].until = time.Time{}
	}
}

// end stops sharing the models for which over returns true.
func (h *servedModels) end(models *modelsync.Models, recorded [32]byte, over func(l lent) bool) {
	h.lent = slices.DeleteFunc(h.lent, func(l lent) bool {
		ends := over(l)
		if ends {
			models.Unshare(l.digest, recorded)
		}
		return ends
	})
}

// serve shares the run's intermediate checkpoint when a member requests it, and stops sharing it
// later.
func (c *intermediates) serve(v *view, models *modelsync.Models, store *exchange.Store, network env.Network) {
	s, h := v.state, &c.served
	commit, recorded := s.Epoch.Commit, s.Model.Checkpoint.Digest
	store.History.Committed(commit.Step)
	running := s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness
	now := c.tasks.Now()
	h.end(models, recorded, func(l lent) bool {
		return !running && s.RunState != coordinator.Cooldown || running && !now.Before(l.until)
	})
	var offered [32]byte
	if running && !h.busy && h.narrow != s.Epoch.StartStep && commit.Step != 0 && h.failed != commit.Digest && c.holds(commit.Digest) && models.Shared(commit.Digest) == nil {
		offered = commit.Digest
	}
	if !store.Cache.Offer(offered) {
		return
	}
	h.busy = true
	taken, epoch := c.of(commit.Digest).copy, v.epoch()
	m := &modelsync.Model{Step: commit.Step, Source: "held"}
	c.tasks.Spawn(func(ctx context.Context) func() {
		err := c.lend(ctx, m, commit, taken, models, network)
		return func() {
			h.busy = false
			s := v.state
			switch {
			case err != nil:
				h.failed = commit.Digest
				c.report.log.Warn("cannot share the intermediate checkpoint with a returning member", "step", commit.Step, "err", err)
			case v.epoch() == epoch && h.narrow != s.Epoch.StartStep && (s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness) && models.Shared(m.Digest) == nil:
				if len(h.lent) == maxLent {
					i := max(0, slices.IndexFunc(h.lent, func(l lent) bool { return !store.Cache.Taken(l.digest) }))
					models.Unshare(h.lent[i].digest, s.Model.Checkpoint.Digest)
					h.lent = slices.Delete(h.lent, i, i+1)
				}
				m.Lent = true
				h.lent = append(h.lent, lent{m.Digest, c.tasks.Now().Add(v.modelSyncTime())})
				models.Share(m, s.Model.Checkpoint.Digest)
				c.report.log.Info("sharing the intermediate checkpoint with a returning member", "step", commit.Step)
				return
			}
			store.Drop(m.Blobs...)
		}
	})
}

// lend lets peers fetch an intermediate checkpoint: from memory, or from its folder.
func (c *intermediates) lend(ctx context.Context, m *modelsync.Model, commit coordinator.Recorded, taken *checkpoint.Snapshot, models *modelsync.Models, network env.Network) error {
	if taken != nil {
		return m.Publish(ctx, c.tasks, modelsync.Beside, network.Lend, *taken)
	}
	dir := c.folder.Intermediate(commit.Step)
	err := c.tasks.AtDisk(func() error { return models.PublishFrom(ctx, m, modelsync.Beside, dir) })
	if err == nil && m.Digest != commit.Digest {
		err = fmt.Errorf("%w: %s differs from the written model", checkpoint.ErrInvalid, dir)
	}
	return err
}
