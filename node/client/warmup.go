package client

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	if !n.closeEpoch() || n.member.Leave.Begun() || !n.run.isMember() {
		return
	}
	if n.rounds.replica == nil {
		m, key := n.models.Held, n.run.epoch()
		switch {
		case !n.engine.holds(n.models.Models, n.run.definition()):
			n.obtainModel()
			return
		case !n.engine.Idle():
			n.engine.CancelRecomputation(true)
			return
		case n.engine.prepared.model != m, n.engine.prepared.epoch != key:
			n.prepare(m, key)
			return
		}
		hash := tally.StartReplica(m.Digest)
		n.enter(m, key, key.StartStep-1, hash, hash)
	}
	prepared, tokens := core.Prepared{}, (*data.Batch)(nil)
	if first := n.run.predict(n.Draws); first.OK { // read the tokens of the first round during Warmup
		n.engine.reader.forget(func(of assign.BatchID) bool { return of == first.Batch })
		tokens = n.engine.reader.read(&first.round, first.Batch, n.run.CompletionTime())
		prepared = core.Prepared{Batch: true, Tokens: tokens != nil}
	}
	n.step(core.Offering{})
	if _, rehearses := n.step(prepared).Next.(core.Rehearse); rehearses {
		n.engine.rehearse(n.run.state.Progress.Step, *tokens, func(m core.Measured) {
			n.report.log.Debug("rehearsed", "tokens", m.Tokens, "seconds", m.Took.Seconds())
			n.step(m)
		})
	}
}

// enter gives the client its replica of the epoch. The client started from the model m. Its replica hash
// after the given step is hash, and the one after the previous step is before.
func (n *Node) enter(m *modelsync.Model, key core.Epoch, step uint32, hash, before [32]byte) {
	n.fetcher.ForgetStalls()
	*n.engine.outlook = core.Outlook{}
	n.models.copies.Model = m.Size
	n.rounds.replica = &core.Replica{Epoch: key, Hash: hash, Before: before, Step: step, Has: m.Step, ColdSteps: n.engine.prepared.coldSteps, From: beganWith(key, m)}
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

// obtainModel loads the model of the coordinator's checkpoint.
func (n *Node) obtainModel() {
	n.engine.CancelRecomputation(true)
	if !n.engine.Idle() || n.tasks.Now().Before(n.engine.loadAt) {
		return
	}
	s := n.run.state
	redefined := n.engine.redefined(n.run.definition())
	if redefined {
		n.report.log.Info("new configuration of the run; rebuilding the trainer", "epoch", s.Progress.Epoch)
		n.engine.trainer = nil
	} else if m := n.models.Held; m != nil && m.Origin.Kind == 0 { // trained here, in the previous epoch
		n.desynchronise("the run recorded a different checkpoint than this client's")
	}
	var places []coordinator.Location
	for _, u := range s.UploadsOf(s.Model.Checkpoint.Digest) {
		places = append(places, u.Place)
	}
	copied, _ := n.models.copies.Find(s.Model.Checkpoint.Digest)
	n.load(s.Model.Checkpoint, 0, modelsync.Request{
		Definition: n.run.definition(), Redefined: redefined, Peers: n.run.Members(),
		Places: places, Copy: copied.Memory, Time: time.Duration(s.Config.WarmupTime) * time.Millisecond,
	})
}

// load starts to load a model. A positive limit bounds the attempt.
func (n *Node) load(from coordinator.Checkpoint, limit time.Duration, wanted modelsync.Request) {
	n.store.Forget(0, 0) // later rounds do not continue from there
	wanted.Trainer = n.engine.trainer
	a := n.models.Begin(wanted)
	start(&n.engine, core.Load{From: from}, func(ctx context.Context) failure {
		limited, cancel := ctx, func() {}
		if limit > 0 {
			limited, cancel = n.tasks.WithTimeout(ctx, limit)
		}
		defer cancel()
		return failure{a.Run(limited), ctx.Err() != nil}
	}, func(f failure) { n.obtained(a, f.err, f.cancelled) }, nil)
}

// obtained takes over the result of an attempt to get the model.
func (n *Node) obtained(a *modelsync.Attempt, err error, cancelled bool) {
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
	if a.Running {
		n.member.rejoin.obtained(a.Model, &n.models.copies, err, cancelled)
		return
	}
	m := a.Model
	if copied, holds := n.models.copies.Find(m.Digest); err == nil && !cancelled && (n.run.state.RunState == coordinator.Finished || holds) {
		n.saver.Take(keep.Model{Step: m.Step, Digest: m.Digest, Snapshot: m.Snapshot, Facts: copied.Facts})
	}
	switch {
	case cancelled, err == nil:
	case errors.Is(err, modelsync.ErrReplay):
		n.report.log.Warn("fetching the whole model", "err", err)
	case errors.Is(err, env.ErrNoRoom):
		n.fail(fmt.Errorf("get the model from peers: %w", err))
	case errors.Is(err, modelsync.ErrNoHolder):
		n.engine.loadAt = n.tasks.Now().Add(modelPause)
		n.report.log.Log(context.Background(), a.Level(), "cannot get the model from peers; trying again", "err", err)
	default:
		n.fail(fmt.Errorf("load the model: %w", err))
	}
}
