package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/event"
)

// modelPause is the pause between two attempts to get a model that no peer provided.
const modelPause = time.Second

// warmup gets the model that the epoch starts from and sends Ready.
func (n *Node) warmup() {
	if !n.closeEpoch() || n.seat.leaving.begun() || !n.run.isMember() || !n.enterEpoch() {
		return
	}
	if first := n.run.predict(n.Draws); first.ok { // read the tokens of the first round during Warmup
		n.engine.reader.forget(func(of assign.BatchID) bool { return of == first.batch })
		n.engine.reader.read(first.batch, n.run.CompletionTime())
	}
	if slices.Contains(n.run.state.Epoch.Ready, n.run.myself()) {
		return
	}
	epoch := n.run.state.Progress.Epoch
	member, _ := n.run.state.Member(n.run.myself())
	ready, ok := n.seat.reveals.ready(member, epoch, n.tasks.Now())
	if !ok {
		return // it joins again
	}
	n.actions.submit("ready", n.rounds.replica.epoch, ready, func() {
		n.report.log.Info("ready", "epoch", epoch)
	})
}

// enterEpoch gives the client its replica if it holds the epoch's model, and reports whether the client
// has a replica. During Warmup it starts to get the model. After Warmup it is too late for that, and
// keepSeat joins the next epoch.
func (n *Node) enterEpoch() bool {
	if n.rounds.replica != nil {
		return true
	}
	if !n.engine.holds(n.models.Models, n.run.definition()) {
		if n.run.state.RunState == coordinator.Warmup {
			n.obtainModel()
		}
		return false
	}
	if !n.engine.Idle() {
		n.engine.CancelRecomputation(true)
		return false
	}
	m, key := n.models.Held, n.run.epoch()
	if p := n.engine.prepared; p.model != m || p.epoch != key {
		n.prepare(m, key)
		return false
	}
	hash := startReplicaOf(m)
	n.enter(m, key, key.startStep-1, hash, hash)
	return true
}

// enter gives the client its replica of the epoch. The client started from the model m. Its replica hash
// after the given step is hash, and the one after the previous step is before.
func (n *Node) enter(m *modelsync.Model, key epochKey, step uint32, hash, before [32]byte) {
	n.fetcher.ForgetStalls()
	n.engine.outlook = outlook{}
	n.models.copies.Model = m.Size
	n.rounds.replica = &replica{epoch: key, hash: hash, before: before, step: step, has: m.Step, coldSteps: n.engine.prepared.coldSteps, from: beganWith(key, m)}
	n.report.emit(event.Ready{
		Epoch: n.run.state.Progress.Epoch, Step: m.Step, Digest: hexOf(m.Digest),
		Source: m.Source, Bytes: m.Fetched, Seconds: m.Seconds,
	})
	if n.seat.again && n.run.isMember() {
		n.seat.again = false
		n.report.emit(event.Rejoined{Epoch: n.run.state.Progress.Epoch, Step: n.run.state.Progress.Step})
	}
	if lapse, lost := n.run.lapseNow(); lost {
		n.report.log.Warn("the run continues from an older model; the results of some counted steps are lost", "first_step", lapse.First, "last_step", lapse.Last)
	}
	n.report.log.Info("holds the model", "epoch", n.run.state.Progress.Epoch, "digest", hexOf(m.Digest)[:16], "source", m.Source)
}

// beganWith returns the digest of the model that an epoch started with, or zero if it is unknown,
// because the client starts with a later one.
func beganWith(key epochKey, m *modelsync.Model) (digest [32]byte) {
	switch {
	case key.checkpoint.FromPeers():
		return key.checkpoint.Digest
	case m.Origin == key.checkpoint:
		return m.Digest
	}
	return digest
}

// startReplicaOf returns the replica hash at the start of an epoch with a model.
func startReplicaOf(m *modelsync.Model) [32]byte { return tally.StartReplica(m.Digest) }

// prepare sets the optimizer up for the epoch. A cold start begins without momentum and with a
// small learning rate, the same for all members.
func (n *Node) prepare(model *modelsync.Model, epoch epochKey) {
	trainer := n.engine.trainer
	var steps uint32
	if n.run.state.Epoch.ColdStart {
		steps = n.run.state.Model.ColdStartWarmupSteps
	}
	reset := n.run.state.Epoch.ColdStart && !model.Fresh
	start(&n.engine, core.Prepare{}, func(ctx context.Context) failure {
		err := trainer.SetColdStart(ctx, epoch.startStep, steps)
		if err == nil && reset {
			err = trainer.ResetOptimizer(ctx)
		}
		return failure{err, ctx.Err() != nil}
	}, func(f failure) {
		switch {
		case f.err == nil:
			n.engine.prepared = preparation{model, epoch, steps}
			if reset {
				n.auditor.ForgetMomentum(epoch.startStep)
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
	var places []coordinator.Place
	for _, u := range s.UploadsOf(s.Model.Checkpoint.Digest) {
		places = append(places, u.Place)
	}
	n.store.Forget(0, 0) // later rounds do not continue from there
	copied, _ := n.models.copies.Find(s.Model.Checkpoint.Digest)
	a := n.models.Begin(modelsync.Request{
		Definition: n.run.definition(), Trainer: n.engine.trainer, Redefined: redefined, Peers: n.run.Members(),
		Places: places, Copy: copied.Memory, Time: time.Duration(s.Config.WarmupTime) * time.Millisecond,
	})
	start(&n.engine, core.Load{From: s.Model.Checkpoint}, func(ctx context.Context) failure {
		return failure{a.Run(ctx), ctx.Err() != nil}
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
		n.seat.rejoin.obtained(a.Model, &n.models.copies, err, cancelled)
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
		n.report.log.Warn("cannot get the model from peers; trying again", "err", err)
	default:
		n.fail(fmt.Errorf("load the model: %w", err))
	}
}

// holds reports whether the trainer holds exactly the coordinator's checkpoint, and was built
// for the run's current definition.
func (e *engine) holds(m *modelsync.Models, run env.Definition) bool {
	return !e.redefined(run) && m.Holds(run.Checkpoint)
}
