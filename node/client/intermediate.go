package client

import (
	"context"

	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/modelsync"
)

// takeOwed takes the model after the newest applied step, if it is due and the trainer is idle.
func (n *Node) takeOwed() {
	if next, due := n.step(core.Idle{Replica: n.rounds.replica, Copies: n.models.copies.described()}).Next.(core.Snapshot); due {
		n.models.copies.takeNow(&n.run, &n.engine, next.Step, n.models.copies.skipped(next.Step))
	}
}

// reportIntermediate reports, during rounds, the newest model that this client can continue from.
func (n *Node) reportIntermediate() {
	s, c := n.run.state, &n.models.copies
	c.tend(s, n.models.Shared(s.Model.Checkpoint.Digest) != nil)
	if me, ok := s.Member(n.run.myself()); ok {
		if model, ok := c.Unreported(s, me); ok {
			n.step(core.Unreported{Model: model})
		}
	}
}

// shareIntermediate shares the run's intermediate checkpoint when a member requests it, and stops
// sharing it later.
func (n *Node) shareIntermediate() {
	s, c, shares := n.run.state, &n.models.copies, &n.models.copies.shares
	commit, now := s.Epoch.Commit, n.tasks.Now()
	n.store.History.Committed(commit.Step)
	for _, digest := range shares.Expire(now, s) {
		n.models.Unshare(digest, s.Model.Checkpoint.Digest)
	}
	held, holds := c.Find(commit.Digest)
	offer := shares.Offer(s, holds && n.models.Shared(commit.Digest) == nil)
	var offered [32]byte
	if offer != nil {
		offered = commit.Digest
	}
	if !n.store.Cache.Offer(offered) {
		return
	}
	shares.Read(offer)
	m := &modelsync.Model{Step: commit.Step, Source: "held"}
	n.tasks.Spawn(func(ctx context.Context) func() {
		err := c.publish(ctx, held, m, n.models.Models, n.Network)
		return func() {
			if err != nil {
				n.report.log.Warn("cannot share the intermediate checkpoint with a returning member", "step", commit.Step, "err", err)
			}
			recorded := n.run.state.Model.Checkpoint.Digest
			if !shares.Came(n.run.state, err, n.models.Shared(m.Digest) != nil) {
				n.store.Drop(m.Blobs...)
				return
			}
			if ended, full := shares.Add(m.Digest, n.tasks.Now().Add(n.run.modelSyncTime()), n.store.Cache.Taken); full {
				n.models.Unshare(ended, recorded)
			}
			m.Lent = true
			n.models.Share(m, recorded)
			n.report.log.Info("sharing the intermediate checkpoint with a returning member", "step", commit.Step)
		}
	})
}
