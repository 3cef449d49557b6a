package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/required"
)

// engine controls the trainer, which runs one operation at a time. Its methods Idle and Yield implement
// auditor.Engine.
type engine struct {
	*core.Jobs
	tasks   *env.Tasks
	trainer env.Trainer    // nil: none yet
	built   env.Definition // definition that the trainer was built from
	reader  *reader        // tokens for training
	begun   func()         // called when the round of a training that started ahead of it begins

	progress *progress // of the newest training; nil: none

	speculation *speculation // nil: no speculation; the weights contain exactly the applied results
	outlook     *core.Outlook

	signing  signing     // steps with a signed result
	prepared preparation // settings of the last preparation of the optimizer
}

// speculation contains results that were applied to the trainer's weights before it was decided
// that they count.
type speculation struct {
	step     uint32
	outcome  tally.Outcome
	payloads [][]byte
	seconds  float64            // time to apply the results
	ready    bool               // the results have been applied
	unread   []*tally.Candidate // results that could not be read
	err      error

	record  *auditor.Record // set once the outcome is known, if results are audited
	reading bool            // the record is being read
}

// preparation is the state that the optimizer is set up for.
type preparation struct {
	model     *modelsync.Model
	epoch     core.Epoch
	coldSteps uint32 // length of the epoch's cold start
}

// progress is the progress of a training. Its task sets done; the loop reads everything.
type progress struct {
	core.Underway
	started time.Time
	done    atomic.Bool // the gradient is computed
}

// underway returns the progress of the trainer's training; nil: it computes no gradient.
func (e *engine) underway() *core.Underway {
	if _, trains := e.Work().(core.Train); !trains || e.progress == nil || e.progress.done.Load() {
		return nil
	}
	now := e.progress.Underway
	now.Complete, now.Begun = progressOf(e.trainer)
	now.Took = e.tasks.Now().Sub(e.progress.started)
	return &now
}

// progressOf returns the parts of the running training's batch whose computation is complete, and has begun; 0
// and 1 if the trainer does not know them.
func progressOf(trainer env.Trainer) (complete, begun float64) {
	if knows, ok := trainer.(env.Progressive); ok {
		return knows.Progress()
	}
	return 0, 1
}

// start starts work of the trainer, which must be idle. do runs in a task. After it, the loop calls
// take with the result or, if the result is no longer wanted, drop. If drop is nil, nothing holds on
// to the result.
func start[R any](e *engine, w core.Work, do func(ctx context.Context) R, take, drop func(R)) core.ID {
	ctx, cancel := e.tasks.WithCancel(e.tasks.Work)
	id := e.Start(w, cancel)
	if _, trains := w.(core.Train); !trains {
		e.speculation = nil
	}
	e.tasks.Run(func() func() {
		defer cancel()
		return ended(e.Jobs, id, do(ctx), take, drop)
	})
	return id
}

// spawn is start for work without the trainer.
func spawn[R any](tasks *env.Tasks, jobs *core.Jobs, w core.Work, do func(ctx context.Context) R, take, drop func(R)) core.ID {
	id := jobs.Spawn(w)
	tasks.Spawn(func(ctx context.Context) func() { return ended(jobs, id, do(ctx), take, drop) })
	return id
}

// ended returns the function that ends work in the loop.
func ended[R any](jobs *core.Jobs, id core.ID, result R, take, drop func(R)) func() {
	return func() {
		switch {
		case jobs.Done(id):
			take(result)
		case drop != nil:
			drop(result)
		}
	}
}

// failure is the result of work that only succeeds or fails.
type failure struct {
	err       error // nil: it succeeded
	cancelled bool
}

// leave ends the work on a replica that the client leaves.
func (e *engine) leave() {
	e.End(core.ReplicaScope)
	e.speculation = nil
}

// Recompute implements auditor.Engine.
func (e *engine) Recompute(step uint32, urgent bool, task func(ctx context.Context) func()) {
	start(e, core.Recompute{Step: step, Urgent: urgent}, task, func(proceed func()) { proceed() }, nil)
}

// Signed implements auditor.Engine.
func (e *engine) Signed() uint32 { return e.signing.Newest() }

// Auditor implements auditor.Engine.
func (e *engine) Auditor() env.Auditor {
	if auditor, ok := e.trainer.(env.Auditor); ok && e.built.Audited {
		return auditor
	}
	return nil
}

// ResetOptimizer implements auditor.Engine.
func (e *engine) ResetOptimizer(done func()) {
	trainer := e.trainer
	start(e, core.Prepare{}, trainer.ResetOptimizer, func(err error) {
		if err == nil {
			done()
		}
	}, nil)
}

// speculated reports whether the weights are the speculative weights after a step.
func (e *engine) speculated(step uint32) bool {
	return e.speculation != nil && e.speculation.ready && e.speculation.step == step
}

// redefined reports whether the run's configuration changed after the trainer was built. It can
// change while the run is paused.
func (e *engine) redefined(run env.Definition) bool {
	return e.trainer != nil && (!bytes.Equal(e.built.Definition, run.Definition) || e.built.Audited != run.Audited)
}

// keepOptimizer writes the momentum for a model that was just taken, for this client's next
// process. The next epoch waits until the momentum is copied or, if it is large and there may be no
// memory for a copy, until it is on the disk.
func (e *engine) keepOptimizer(saver *keep.Saver, m *modelsync.Model) {
	trainer, ok := e.trainer.(env.OptimizerSaver)
	if !ok || saver.Folder.Dir == "" || e.built.Audited { // with audits, training does not continue from a saved momentum
		return
	}
	failed := func(err error) {
		saver.Log.Warn("cannot save the optimizer's state for a restart", "step", m.Step, "err", err)
	}
	if saver.Momentum > 0 {
		failed(errors.New("the state of an earlier step is still being written"))
		return
	}
	var bytes int
	var write func(path string) error
	start(e, core.Keep{}, func(ctx context.Context) (err error) {
		bytes, write, err = trainer.SaveOptimizer(ctx, required.MaxCopied)
		return err
	}, func(err error) {
		if err != nil {
			failed(err)
			return
		}
		saver.Momentum = bytes
		save := func(context.Context) error {
			return e.tasks.AtDisk(func() error { return saver.Folder.SaveOptimizer(write, m.Step, m.Digest) })
		}
		saved := func(err error) {
			saver.Momentum = 0
			if err != nil {
				failed(err)
			}
		}
		if bytes > required.MaxCopied {
			start(e, core.Keep{}, save, saved, nil)
		} else {
			spawn(e.tasks, e.Jobs, core.Keep{}, save, saved, nil)
		}
	}, nil)
}

// Lag implements auditor.Engine. It returns 1 if there is no trainer.
func (e *engine) Lag() uint32 {
	if e.trainer == nil {
		return 1
	}
	return e.trainer.ApplyLag()
}

// reader reads the tokens of the batches that this client trains or may train next.
type reader struct {
	tasks   *env.Tasks
	jobs    *core.Jobs
	data    env.DataProvider
	log     *slog.Logger
	fail    func(error) // called with an error that no retry can fix
	batches map[assign.BatchID]*reading
}

// reading is a batch that is being read or was read.
type reading struct {
	from    []assign.BatchID // its sequences
	tokens  *data.Batch      // nil: not read yet
	loading bool
	task    core.ID            // while the batch is loading
	cancel  context.CancelFunc // of the task
	at      time.Time          // earliest time of the next attempt
	tries   int
}

// read returns the tokens of a round's batch, or nil while they are being read. limit bounds each attempt.
// Attempts continue as long as read is called, because attempts that failed before the round
// started must not cost the batch.
func (r *reader) read(round *coordinator.Round, batch assign.BatchID, limit time.Duration) *data.Batch {
	from := round.Sequences(batch)
	if known := r.batches[batch]; known != nil && !slices.Equal(known.from, from) { // the predicted round did not begin
		r.forget(func(of assign.BatchID) bool { return of != batch })
	}
	this := r.batches[batch]
	if this == nil {
		this = &reading{from: from}
		r.batches[batch] = this
	}
	if this.tokens == nil && !this.loading && !r.tasks.Now().Before(this.at) {
		this.loading = true
		r.load(this, batch, limit)
	}
	return this.tokens
}

func (r *reader) load(this *reading, batch assign.BatchID, limit time.Duration) {
	wanted, cancel := r.tasks.WithCancel(r.tasks.Work)
	this.cancel = cancel
	var tokens data.Batch
	this.task = spawn(r.tasks, r.jobs, core.Read{Batch: batch}, func(context.Context) (err error) {
		defer cancel()
		ctx, cancel := r.tasks.WithTimeout(wanted, limit)
		defer cancel()
		tokens, err = data.Gather(ctx, r.data, batch, this.from, false)
		return err
	}, func(err error) {
		this.loading = false
		switch {
		case err == nil:
			this.tokens = &tokens
		case data.IsPermanent(err):
			r.fail(fmt.Errorf("read training data: %w", err))
		default:
			this.tries++
			this.at = r.tasks.Now().Add(fetch.Backoff(this.tries))
			r.log.Error("cannot read training data", "batch", batch, "attempt", this.tries, "err", err)
		}
	}, nil)
}

// forget drops the batches for which keep returns false, and cancels their reads. A read that is not
// cancelled would delay the next one: a data server answers one request of a member at a time, and it
// waits before it refuses a batch, because the member may see a round before the server does.
func (r *reader) forget(keep func(assign.BatchID) bool) {
	for batch, of := range r.batches {
		if keep(batch) {
			continue
		}
		if of.loading {
			r.jobs.Drop(of.task)
			of.cancel()
		}
		delete(r.batches, batch)
	}
}

// signing is core.Signing with the signing record on the disk.
type signing struct {
	core.Signing
	folder keep.Folder
	run    [32]byte // hash of the run in the signing record
}

// recall determines the newest step with a result that an earlier process may have signed. state is the
// first state that this process sees. Without a signing record, recall assumes the running round, if
// this client is one of its members: a result of a later round could not be signed yet.
func (s *signing) recall(run [32]byte, me coordinator.ClientID, state *coordinator.State, log *slog.Logger) {
	s.run = run
	step, found, err := s.folder.NewestSigned(s.run)
	if found {
		s.Recall(step)
		if step > state.Progress.Step {
			log.Warn("this key signed results of later steps of this run; it signs no result until the run has passed these steps",
				"signed", step, "step", state.Progress.Step, "file", s.folder.Signed())
		}
		return
	}
	if err != nil {
		log.Warn("cannot read the signing record; training nothing in the running round", "err", err)
	}
	s.Recall(state.Progress.Step - 1)
	if state.RunState != coordinator.RoundTrain && state.RunState != coordinator.RoundWitness {
		return
	}
	if round := state.CurrentRound(); round != nil && slices.Contains(round.Members, me) {
		s.Recall(state.Progress.Step)
	}
}

// record makes the signing record of a step durable, in the training task.
func (s *signing) record(step uint32) (core.Permit, error) {
	return s.Record(step, func() error { return s.folder.NoteSigned(s.run, step) })
}
