package client

import (
	"context"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/record/event"
)

// Node is one client of a run. All its fields belong to the goroutine of Run. Slow work runs in
// other goroutines, which return a continuation for Run to call.
type Node struct {
	Options
	tasks *env.Tasks

	run     view             // the newest state of the run
	member  membership       // decisions, and this client's seat in the run
	actions *submitter       // actions sent to the coordinator
	engine  engine           // the trainer and its current operation
	rounds  roundStates      // the newest rounds, and the replica that they are applied to
	fetcher *fetch.Fetcher   // downloads results of peers
	models  modelStates      // models, in memory and on the disk
	auditor *auditor.Auditor // the client's audit work
	saver   *keep.Saver      // files on the disk
	gossip  *gossipReader    // gossip of peers
	store   *exchange.Store  // data that peers may request
	report  *reporter
	end     *ending // nil: the client continues
}

// modelStates contains the models of a client.
type modelStates struct {
	*modelsync.Models               // the trainer's model, shared models, and their sources
	copies            intermediates // intermediate checkpoints
	snapshotter       snapshotter   // the model at the end of an epoch
	holds             holdings      // models that the client can load by itself
}

// ending is the result of a client.
type ending struct{ err error }

// desynchronise drops the replica, because the trainer's weights are no longer the run's. The
// client returns to the running epoch as a restarted client does, or joins the next one. It gets
// the model from its own copies of the run's checkpoint, or from its peers.
func (n *Node) desynchronise(reason string) {
	at := n.run.state.Progress
	n.report.log.Warn("desynchronised: leaving the epoch to get the model from peers", "reason", reason)
	n.report.emit(event.Desynchronised{Epoch: at.Epoch, Step: at.Step, Reason: reason})
	n.engine.Cancel()
	for _, rs := range n.rounds.of {
		n.fetcher.StopRound(rs.Tally)
	}
	n.rounds.replica, n.models.Held = nil, nil
	n.engine.leave()
	n.engine.End(core.Weights)
	n.models.snapshotter.leave()
	n.store.Forget(0, 0) // these results may not be the run's
	n.models.copies.Abandon(n.run.state)
	n.auditor.ForgetRounds()
	n.step(core.Lost{})
}

// step passes an event to the member's decisions, and executes the effects. It returns them for
// callers that execute the rest: the trainer's next work, and access to the disk.
func (n *Node) step(e core.Event) core.Ready {
	n.member.Step(n.tasks.Now(), e)
	ready := n.member.Ready()
	if ready.Ended != nil {
		if err := n.report.ended(n.run.state, *ready.Ended, n.models.Held, n.saver); err != nil {
			n.fail(err)
		}
	}
	for _, said := range ready.Report {
		n.report.say(said, n.run.state)
	}
	for _, a := range ready.Submit {
		n.actions.send(a.Kind, a.Action, func(err error) { n.step(core.Answered{Kind: a.Kind, Err: err}) })
	}
	for _, started := range ready.Start {
		n.check(started.ID)
	}
	if ready.Fail != nil {
		n.fail(ready.Fail)
	}
	if ready.End && n.end == nil {
		n.end = &ending{}
	}
	n.member.Advance()
	if ready.Desynchronise != "" {
		n.desynchronise(ready.Desynchronise)
	}
	return ready
}

// check checks whether this client can do its part in the run's current definition.
func (n *Node) check(id core.ID) {
	run := n.run.definition()
	n.tasks.Spawn(func(ctx context.Context) func() {
		done := core.Checked{ID: id, Err: n.CheckRun(ctx, run), Cancelled: ctx.Err() != nil}
		return func() { n.step(done) }
	})
}

// fail ends the client with an error.
func (n *Node) fail(err error) {
	n.end = &ending{err}
	n.report.emit(event.Failed{Error: err.Error()})
}

// Uploaded records that other members can download a checkpoint saved by this client from a
// location. The client reports it to the run once it is a member or pending. Uploaded may be called
// from any goroutine, also after the client has ended. In that case it reports nothing.
func (n *Node) Uploaded(f checkpoint.Facts, at coordinator.Location) {
	n.saver.Uploads.Add(n.RunID, f, at)
}

// reportUpload reports the location of the newest uploaded checkpoint to the run.
func (n *Node) reportUpload() {
	report, ok := n.saver.Uploads.Next(n.run.state, n.run.myself(), n.report.log)
	if !ok {
		return
	}
	n.actions.submit("upload", report, report, func() {
		n.report.log.Info("reported the upload to the run", "step", report.Step, "at", report.Place)
		n.report.emit(event.Uploaded{Step: report.Step, Digest: hexOf(report.Digest), Place: report.Place.String()})
	})
}

// Model returns the digest of the model that the client holds between two epochs, and the step
// after which the model was taken. ok is false while the client trains or holds no model.
func (n *Node) Model() (digest [32]byte, step uint32, ok bool) {
	m := n.models.Held
	if m == nil {
		return digest, 0, false
	}
	return m.Digest, m.Step, true
}

// Replica returns the hash of all results applied in this epoch, and the newest applied step. ok is
// false while the client has no replica of the run's model.
func (n *Node) Replica() (hash [32]byte, step uint32, ok bool) {
	if n.rounds.replica == nil {
		return hash, 0, false
	}
	return n.rounds.replica.Hash, n.rounds.replica.Step, true
}
