package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/fetch"
	"github.com/psyche-go/psyche/node/handover"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/required"
)

// Operations of the trainer.
const (
	opLoad      = "load"
	opPrepare   = "prepare"
	opTrain     = "train"
	opApply     = "apply"
	opForesee   = "foresee"
	opSnapshot  = "snapshot"
	opKeep      = "keep optimizer"
	opReplay    = "replay"
	opRecompute = "recompute"
)

// engine controls the trainer, which runs one operation at a time.
type engine struct {
	tasks   *env.Tasks
	trainer env.Trainer    // nil: none yet
	built   env.Definition // definition that the trainer was built from
	reader  *reader        // tokens for training
	op      *operation     // current operation; nil: the trainer is idle
	keeping int            // bytes of a momentum that is being written to the disk; 0: none

	foresight *foresight // nil: no speculation; the weights contain exactly the applied results
	outlook   outlook

	signing  signing     // steps with a signed result
	prepared preparation // settings of the last preparation of the optimizer
	failures int         // consecutive failures to apply
	loadAt   time.Time   // earliest time of the next attempt to load the model
}

// operation is the current operation of the trainer.
type operation struct {
	name   string
	step   uint32                 // of a training
	batch  assign.BatchID         // of a training ahead of its round
	tell   func()                 // called when its round starts; nil: the round has started
	from   coordinator.Checkpoint // of a load, or a replay
	urgent bool                   // a recomputation that other work waits for
	cancel context.CancelFunc
}

// preparation is the state that the optimizer is set up for.
type preparation struct {
	model     *handover.Model
	epoch     epochKey
	coldSteps uint32 // length of the epoch's cold start
}

// Idle implements auditor.Engine.
func (e *engine) Idle() bool { return e.op == nil }

// start runs a task that uses the trainer. The caller must have checked that the trainer is idle.
// The function that the task returns runs in the loop.
func (e *engine) start(name string, step uint32, task func(ctx context.Context) func()) {
	ctx, cancel := e.tasks.WithCancel(e.tasks.Work)
	e.op = &operation{name: name, step: step, cancel: cancel}
	if name != opTrain {
		e.foresight = nil
	}
	e.tasks.Run(func() func() {
		defer cancel()
		proceed := task(ctx)
		return func() {
			e.op = nil
			proceed()
		}
	})
}

// cancel stops the current operation of the trainer. If the operation is a training that began ahead
// of its round, it stays cancelled, even if the round starts before the trainer has stopped.
func (e *engine) cancel() {
	if e.op != nil {
		e.op.cancel()
		e.op.tell = nil
	}
}

// cancelTraining stops a training unless keep returns true for its step.
func (e *engine) cancelTraining(keep func(step uint32) bool) {
	if e.op != nil && e.op.name == opTrain && !keep(e.op.step) {
		e.cancel()
	}
}

// cancelRecomputation stops a recomputation, unless it is urgent. All other work has precedence
// over it.
func (e *engine) cancelRecomputation() {
	if e.op != nil && e.op.name == opRecompute && !e.op.urgent {
		e.op.cancel()
	}
}

// Recompute implements auditor.Engine.
func (e *engine) Recompute(step uint32, urgent bool, task func(ctx context.Context) func()) {
	e.start(opRecompute, step, task)
	e.op.urgent = urgent
}

// Yield implements auditor.Engine.
func (e *engine) Yield() {
	if e.op != nil {
		e.op.urgent = false
	}
}

// Signed implements auditor.Engine.
func (e *engine) Signed() uint32 { return e.signing.newest }

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
	e.start(opPrepare, 0, func(ctx context.Context) func() {
		err := trainer.ResetOptimizer(ctx)
		return func() {
			if err == nil {
				done()
			}
		}
	})
}

// abandonRecomputation stops a recomputation, urgent or not.
func (e *engine) abandonRecomputation() {
	if e.op != nil && e.op.name == opRecompute {
		e.op.cancel()
	}
}

// none is an argument of cancelTraining that keeps no training.
func none(uint32) bool { return false }

// isAhead reports whether the trainer is training a step ahead of the step's round.
func (e *engine) isAhead(step uint32) bool {
	return e.op != nil && e.op.name == opTrain && e.op.step == step && e.op.tell != nil
}

// foresaw reports whether the weights are the speculative weights after a step.
func (e *engine) foresaw(step uint32) bool {
	return e.foresight != nil && e.foresight.ready && e.foresight.step == step
}

// cancelLoad stops loading a model other than the wanted checkpoint. Otherwise a holder that sends only
// a byte now and then could keep the client from joining the next epoch, or from ending. The received
// parts are kept.
func (e *engine) cancelLoad(wanted coordinator.Checkpoint) {
	if e.op != nil && (e.op.name == opLoad || e.op.name == opReplay) && e.op.from != wanted {
		e.op.cancel()
	}
}

// redefined reports whether the run's configuration changed after the trainer was built. It can
// change while the run is paused.
func (e *engine) redefined(run env.Definition) bool {
	return e.trainer != nil && (!bytes.Equal(e.built.Definition, run.Definition) || e.built.Audited != run.Audited)
}

// keepOptimizer writes the momentum for a model that was just taken, for this client's next
// process. The next epoch waits until the momentum is copied or, if it is large and there may be no
// memory for a copy, until it is on the disk.
func (e *engine) keepOptimizer(folder keep.Folder, m *handover.Model, log *slog.Logger) {
	trainer, ok := e.trainer.(env.OptimizerSaver)
	if !ok || folder.Dir == "" || e.built.Audited { // with audits, training does not continue from a saved momentum
		return
	}
	failed := func(err error) {
		log.Warn("cannot save the optimizer's state for a restart", "step", m.Step, "err", err)
	}
	if e.keeping > 0 {
		failed(errors.New("the state of an earlier step is still being written"))
		return
	}
	e.start(opKeep, 0, func(ctx context.Context) func() {
		bytes, write, err := trainer.SaveOptimizer(ctx, required.MaxCopied)
		return func() {
			if err != nil {
				failed(err)
				return
			}
			e.keeping = bytes
			save := func(context.Context) func() {
				err := e.tasks.AtDisk(func() error { return folder.SaveOptimizer(write, m.Step, m.Digest) })
				return func() {
					e.keeping = 0
					if err != nil {
						failed(err)
					}
				}
			}
			if bytes > required.MaxCopied {
				e.start(opKeep, 0, save)
			} else {
				e.tasks.Spawn(save)
			}
		}
	})
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
	data    env.DataProvider
	log     *slog.Logger
	fail    func(error) // called with an error that no retry can fix
	batches map[assign.BatchID]*reading
}

// reading is a batch that is being read or was read.
type reading struct {
	tokens  *data.Batch // nil: not read yet
	loading bool
	cancel  context.CancelFunc // while the batch is loading
	at      time.Time          // earliest time of the next attempt
	tries   int
}

// read returns the tokens of a batch, or nil while they are being read. limit bounds each attempt.
// Attempts continue as long as read is called, because attempts that failed before the round
// started must not cost the batch.
func (r *reader) read(batch assign.BatchID, limit time.Duration) *data.Batch {
	this := r.batches[batch]
	if this == nil {
		this = &reading{}
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
	r.tasks.Spawn(func(context.Context) func() {
		defer cancel()
		ctx, cancel := r.tasks.WithTimeout(wanted, limit)
		defer cancel()
		tokens, err := r.data.Batch(ctx, batch)
		if err == nil && uint64(len(tokens.Sequences)) != batch.Len() {
			err = fmt.Errorf("got %d sequences of %d", len(tokens.Sequences), batch.Len())
		}
		return func() {
			this.loading = false
			switch {
			case err == nil:
				this.tokens = &tokens
			case r.batches[batch] != this: // no longer wanted
			case data.IsPermanent(err):
				r.fail(fmt.Errorf("read training data: %w", err))
			default:
				this.tries++
				this.at = r.tasks.Now().Add(fetch.Backoff(this.tries))
				r.log.Error("cannot read training data", "batch", batch, "attempt", this.tries, "err", err)
			}
		}
	})
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
			of.cancel()
		}
		delete(r.batches, batch)
	}
}

// signing records which steps this client has signed results of. It must never sign two results of
// one step, even after a restart.
type signing struct {
	folder keep.Folder
	run    [32]byte // hash of the run in the signing record
	newest uint32   // newest step with a result that this process, or possibly an earlier process, signed
	noted  uint32   // newest step that this process recorded before signing; owned by the training task
}

func newSigning(folder keep.Folder) signing {
	return signing{folder: folder}
}

// recall determines the newest step with a result that an earlier process may have signed. state is the
// first state that this process sees. Without a signing record, recall assumes the running round, if
// this client is one of its members: a result of a later round could not be signed yet.
func (s *signing) recall(run [32]byte, me coordinator.ClientID, state *coordinator.State, log *slog.Logger) {
	s.run = run
	step, found, err := s.folder.NewestSigned(s.run)
	if found {
		s.newest = step
		if step > state.Progress.Step {
			log.Warn("this key signed results of later steps of this run; it signs no result until the run has passed these steps",
				"signed", step, "step", state.Progress.Step, "file", s.folder.Signed())
		}
		return
	}
	if err != nil {
		log.Warn("cannot read the signing record; training nothing in the running round", "err", err)
	}
	s.newest = state.Progress.Step - 1
	if state.RunState != coordinator.RoundTrain && state.RunState != coordinator.RoundWitness {
		return
	}
	if round := state.CurrentRound(); round != nil && slices.Contains(round.Members, me) {
		s.newest = state.Progress.Step
	}
}

// may reports whether a result of the step may be signed.
func (s *signing) may(step uint32) bool { return step > s.newest }

// note records a step before its result is passed to the loop to be signed. The training task calls
// it. A step whose first result was not signed may be trained again.
func (s *signing) note(step uint32) error {
	if s.noted == step {
		return nil
	}
	if err := s.folder.NoteSigned(s.run, step); err != nil {
		return err
	}
	s.noted = step
	return nil
}
