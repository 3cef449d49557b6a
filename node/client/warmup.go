package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// warmup gets the model that the epoch starts from and sends Ready.
func (n *Node) warmup() {
	if !n.closeEpoch() {
		return
	}
	ready := n.step(core.Warmup{Trainer: n.trainer(), Replica: n.rounds.replica != nil})
	n.startModel(ready.Next)
	if ready.Enter != nil {
		n.enter(*ready.Enter)
	}
	if !ready.ReadFirst {
		return
	}
	first, tokens := n.run.predict(n.Draws), (*data.Batch)(nil)
	if first.OK { // read the tokens of the first round during Warmup
		n.engine.reader.forget(func(of assign.BatchID) bool { return of == first.Batch })
		tokens = n.engine.reader.read(&first.round, first.Batch, n.run.CompletionTime())
	}
	n.step(core.Offering{})
	prepared := core.Prepared{Batch: first.Step != 0, Tokens: first.Step != 0 && !first.OK || tokens != nil}
	if _, rehearses := n.step(prepared).Next.(core.Rehearse); rehearses {
		if tokens == nil {
			tokens = blankBatch(&first.round, n.run.state.Model.MaxSeqLen)
		}
		n.engine.rehearse(n.run.state.Progress.Step, *tokens, func(m core.Measured) {
			n.report.log.Debug("rehearsed", "tokens", m.Tokens, "seconds", m.Took.Seconds())
			n.step(m)
		})
	}
}

// trainer describes the trainer's model.
func (n *Node) trainer() core.Trainer {
	t, m := core.Trainer{Redefined: n.engine.redefined(n.run.definition())}, n.models.Held
	if m != nil {
		t.Held, t.Start = modelOf(m), tally.StartReplica(m.Digest)
		t.Prepared = n.engine.prepared.model == m && n.engine.prepared.epoch == n.run.epoch()
	}
	return t
}

// startModel starts to load a model, or to set the optimizer up for it.
func (n *Node) startModel(w core.Work) {
	switch w := w.(type) {
	case core.Load:
		n.load(w)
	case core.Prepare:
		n.prepare(n.models.Held, n.run.epoch())
	}
}

// enter gives the client its replica of the epoch. The client started from the model that the optimizer
// is prepared for.
func (n *Node) enter(at core.Entry) {
	m, key := n.engine.prepared.model, n.run.epoch()
	n.fetcher.ForgetStalls()
	*n.engine.outlook = core.Outlook{}
	n.models.copies.Model = m.Size
	n.rounds.replica = &core.Replica{Epoch: key, Hash: at.Hash, Before: at.Before, Step: at.Step, Has: m.Step, ColdSteps: n.engine.prepared.coldSteps, From: beganWith(key, m)}
	n.report.emit(event.Ready{
		Epoch: n.run.state.Progress.Epoch, Step: m.Step, Digest: hexOf(m.Digest),
		Source: m.Source, Bytes: m.Fetched, Seconds: m.Seconds,
	})
	n.step(core.Entered{})
	if gap, lost := n.run.newestRollbackGap(); lost {
		n.report.log.Warn("the run continues from an older model; the results of some counted steps are lost", "first_step", gap.First, "last_step", gap.Last)
	}
	n.report.log.Info("holds the model", "epoch", n.run.state.Progress.Epoch, "digest", hexOf(m.Digest)[:16], "source", m.Source)
}

// prepare sets the optimizer up for the epoch. A cold start begins without momentum and with a
// small learning rate, the same for all members.
func (n *Node) prepare(model *modelsync.Model, epoch core.Epoch) {
	trainer := n.engine.trainer
	var steps uint32
	if n.run.state.Epoch.ColdStart {
		steps = n.run.state.Model.ColdStartWarmupSteps
	}
	reset := n.run.state.Epoch.ColdStart && !model.Fresh
	start(&n.engine, core.Prepare{}, func(ctx context.Context) failure {
		err := trainer.SetColdStart(ctx, epoch.StartStep, steps)
		if err == nil && reset {
			err = trainer.ResetOptimizer(ctx)
		}
		return failure{err, ctx.Err() != nil}
	}, func(f failure) {
		switch {
		case f.err == nil:
			n.engine.prepared = preparation{model, epoch, steps}
			if reset {
				n.auditor.ForgetMomentum(epoch.StartStep)
			}
		case !f.cancelled:
			n.fail(fmt.Errorf("prepare the optimizer: %w", f.err))
		}
	}, nil)
}

// load loads a model.
func (n *Node) load(w core.Load) {
	if w.Rebuild {
		n.engine.trainer = nil
	}
	r := modelsync.Request{Definition: n.run.definition(), Trainer: n.engine.trainer, Sources: w.Sources, Timeout: w.Answer, Time: n.run.modelSyncTime()}
	if w.Taken.Step != 0 {
		if !w.Again {
			n.member.holders = n.run.holders(w.Taken.Step)
		}
		r.Running, r.Peers = true, n.member.holders
	} else {
		for _, u := range n.run.state.UploadsOf(w.From.Digest) {
			r.Places = append(r.Places, u.Place)
		}
		r.Peers = n.run.Members()
	}
	r.Definition.Checkpoint = w.Wanted()
	copied, _ := n.models.copies.Find(r.Definition.Checkpoint.Digest)
	r.Copy = copied.Memory
	n.store.Forget(0, 0) // later rounds do not continue from there
	a := n.models.Begin(r)
	start(&n.engine, w, func(ctx context.Context) failure {
		limited, cancel := ctx, func() {}
		if w.Limit > 0 {
			limited, cancel = n.tasks.WithTimeout(ctx, w.Limit)
		}
		defer cancel()
		return failure{a.Run(limited), ctx.Err() != nil}
	}, func(f failure) { n.obtained(w, a, f.err, f.cancelled) }, nil)
}

// askedHolders is the number of members asked for an intermediate checkpoint. It is small, because each of
// them reads and hashes the checkpoint.
const askedHolders = 3

// holders returns randomly chosen members that reported an intermediate checkpoint.
func (v *view) holders(step uint32) []identity.ID {
	ids := v.drawn(func(c *coordinator.Client) bool { return c.HoldsEarlier == step })
	return ids[:min(len(ids), askedHolders)]
}

// obtained takes over the result of an attempt to get the model.
func (n *Node) obtained(w core.Load, a *modelsync.Attempt, err error, cancelled bool) {
	n.report.total.ModelReceived += a.Model.Fetched
	if a.Trainer != nil {
		n.engine.trainer, n.engine.built = a.Trainer, a.Definition
		n.auditor.ForgetMomentum(n.run.state.Progress.Step)
	}
	if err == nil && !cancelled {
		n.store.Forget(a.Model.Size, n.ResultMemory)
		for _, round := range a.Rounds { // the rounds with which it caught up, so that other members can do the same
			n.store.Remember(round)
		}
	}
	n.models.End(a, err, cancelled, n.run.state.Model.Checkpoint.Digest)
	defer n.models.PutDown(a.Model, a.Model.Dir)
	defer n.step(core.Obtained{Load: w, Fault: faultOf(err, cancelled), Err: err, Tries: a.Tries})
	m := a.Model
	if a.Running {
		if err == nil && !cancelled {
			n.models.copies.add(m)
		}
		return
	}
	if copied, holds := n.models.copies.Find(m.Digest); err == nil && !cancelled && (n.run.state.RunState == coordinator.Finished || holds) {
		n.saver.Take(keep.Model{Step: m.Step, Digest: m.Digest, Snapshot: m.Snapshot, Facts: copied.Facts})
	}
}

// faultOf returns the reason why an attempt to get a model failed.
func faultOf(err error, cancelled bool) core.Fault {
	switch {
	case cancelled:
		return core.Cancelled
	case err == nil:
		return core.NoFault
	case errors.Is(err, modelsync.ErrReplay): // also if the memory had no room for the results
		return core.ResultsDiffer
	case errors.Is(err, env.ErrNoRoom):
		return core.NoMemory
	case errors.Is(err, modelsync.ErrNoHolder):
		return core.NoHolder
	}
	return core.OtherFault
}
