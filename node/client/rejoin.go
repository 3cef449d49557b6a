package client

import (
	"context"

	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
)

// rejoin gets the model of the running round. The loop calls it until the client has a replica.
func (n *Node) rejoin() {
	key := n.run.epoch()
	ready := n.step(core.Rejoin{
		Trainer: n.trainer(), Lag: n.engine.Lag(),
		Follows: func(step uint32) bool {
			rs := n.rounds.of[step+1]
			return rs != nil && rs.EpochStart == key.StartStep
		},
		Leads: func(after, until uint32) bool { return n.rounds.lead(key.StartStep, after, until) },
	})
	if ready.Enter != nil {
		n.enter(*ready.Enter)
	}
	if w, replays := ready.Next.(core.Replay); replays {
		n.replay(w)
	} else {
		n.startModel(ready.Next)
	}
}

// replay gets the counted results up to the step of a quorum's value from peers, and applies them if
// they lead to that value. If the client has already reached the step, replay only requests the
// replica hash.
func (n *Node) replay(w core.Replay) {
	base, trainer, limit, head := n.engine.prepared, n.engine.trainer, n.run.CompletionTime(), n.run.startOf(w.Round).Hash
	plan := modelsync.ReplayPlan{
		From: beganWith(base.epoch, base.model), Start: base.epoch.StartStep, ColdSteps: base.coldSteps,
		After: w.After, Until: w.Until, Hash: w.Hash, Peers: n.run.Members(),
		Wanted: func(replica [32]byte) bool { return tally.ReplicaAt(replica, head) == w.Said },
	}
	if w.Until > w.After {
		n.models.Held = nil
	}
	var f modelsync.Replayed
	start(&n.engine, w, func(ctx context.Context) (err error) {
		ctx, cancel := n.tasks.WithTimeout(ctx, limit)
		defer cancel()
		f, err = n.models.Follow(ctx, trainer, plan)
		return err
	}, func(err error) {
		n.report.total.ModelReceived += f.Fetched
		n.step(core.Replayed{Until: w.Until, Hash: f.Hash, Before: f.Before, Rounds: len(f.Rounds), Err: err})
		switch {
		case err != nil && w.Until > w.After:
			n.store.Drop(f.Blobs...)
		case err == nil:
			n.auditor.ForgetMomentum(n.run.state.Progress.Step)
			n.auditor.ForgetRounds()
			for _, round := range f.Rounds {
				n.store.Remember(round)
			}
			if len(f.Rounds) > 0 {
				n.report.log.Info("applied the counted results of the running epoch; optimizer reset", "step", w.Until, "bytes", f.Fetched)
			}
		}
	}, func(error) {
		n.report.total.ModelReceived += f.Fetched
		n.store.Drop(f.Blobs...)
	})
}
