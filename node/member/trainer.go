package member

import (
	"context"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/eval"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/node/env"
)

// trainer is the common interface of the trainers of package train, for any optimizer.
type trainer interface {
	env.Trainer
	env.Speculator
	env.Lender
	env.Progressive
	OptimizerState(ctx context.Context) (train.OptimizerState, error)
	LendOptimizerState(ctx context.Context) (train.OptimizerState, error)
	SetOptimizerState(ctx context.Context, state train.OptimizerState) error
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
}

// Learner is the trainer of a member in a run without audits.
type Learner struct {
	trainer
	measuring   Measuring
	heldOut     [][]int32             // sequences of tokens
	speculating func()                // ends Busy after Speculate; nil: no speculation
	explain     func(err error) error // adds advice to errors of failed allocations; nil: no advice
}

// audited is a trainer whose results can be audited.
type audited interface {
	trainer
	env.Auditor
}

// Trainer is the trainer of a member in any run with DisTrO, and in a run with local steps and
// audits.
type Trainer struct {
	Learner
	env.Auditor
}

var (
	_ env.Trainer        = (*Trainer)(nil)
	_ env.Auditor        = (*Trainer)(nil)
	_ env.OptimizerSaver = (*Trainer)(nil)
	_ env.Measurer       = (*Trainer)(nil)
	_ env.Lender         = (*Trainer)(nil)

	_ env.Trainer        = (*Learner)(nil)
	_ env.OptimizerSaver = (*Learner)(nil)
	_ env.Measurer       = (*Learner)(nil)

	_ env.Trainer = (*dummy.Trainer)(nil)
	_ env.Trainer = (*dummy.Audited)(nil)
	_ env.Auditor = (*dummy.Audited)(nil)
)

// New returns the trainer of a member, with its held-out sequences. m may be nil.
func New(t audited, m Measuring, heldOut [][]int32) *Trainer {
	return &Trainer{*newLearner(t, m, heldOut), t}
}

// newLearner returns the trainer of a member in a run without audits. m may be nil.
func newLearner(t trainer, m Measuring, heldOut [][]int32) *Learner {
	if m == nil {
		m = unmeasured{}
	}
	return &Learner{trainer: t, measuring: m, heldOut: heldOut}
}

// Measuring uses a trainer's model while the training does not need it. All methods return at once.
type Measuring interface {
	// Use starts using the model of a trainer, which was created from a snapshot.
	Use(t eval.LM, s checkpoint.Snapshot)
	// Forget stops using it, before the trainer is closed.
	Forget()
	// Busy reports that the training needs the model, until done is called.
	Busy() (done func())
	// Changed reports the current step of the model.
	Changed(step uint32)
}

// unmeasured is a Measuring that does nothing.
type unmeasured struct{}

func (unmeasured) Use(eval.LM, checkpoint.Snapshot) {}
func (unmeasured) Forget()                          {}
func (unmeasured) Busy() (done func())              { return func() {} }
func (unmeasured) Changed(uint32)                   {}

// busy is Measuring.Busy for calls that may end a speculation. Between Speculate and the next of
// these calls, no measurement runs, because it would undo the speculation.
func (t *Learner) busy() (done func()) {
	done = t.measuring.Busy()
	if ended := t.speculating; ended != nil {
		t.speculating = nil
		ended()
	}
	return done
}

// Speculate implements env.Speculator.
func (t *Learner) Speculate(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) (bool, error) {
	idle := t.measuring.Busy()
	done, err := t.trainer.Speculate(ctx, step, payloads, votes, ownCounted)
	if done {
		t.speculating = idle
	} else {
		idle()
	}
	return done, err
}

// Confirm implements env.Speculator.
func (t *Learner) Confirm(step uint32) bool {
	confirmed := t.trainer.Confirm(step)
	if confirmed {
		t.measuring.Changed(step)
	}
	return confirmed
}

// Train implements env.Trainer.
func (t *Learner) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	defer t.busy()()
	payload, loss, err := t.trainer.Train(ctx, step, batch, begun)
	return payload, loss, t.explained(err)
}

func (t *Learner) explained(err error) error {
	if t.explain == nil {
		return err
	}
	return t.explain(err)
}

// Apply implements env.Trainer.
func (t *Learner) Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error {
	defer t.busy()()
	err := t.trainer.Apply(ctx, step, payloads, votes, ownCounted)
	if err == nil {
		t.measuring.Changed(step)
	}
	return t.explained(err)
}

// Snapshot implements env.Trainer.
func (t *Learner) Snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	defer t.busy()()
	return t.trainer.Snapshot(ctx)
}

// Lend implements env.Lender.
func (t *Learner) Lend(ctx context.Context, use func(s checkpoint.Snapshot) error) error {
	defer t.busy()()
	return t.trainer.Lend(ctx, use)
}

// Load implements env.Trainer.
func (t *Learner) Load(ctx context.Context, s checkpoint.Snapshot) error {
	defer t.busy()()
	err := t.trainer.Load(ctx, s)
	if err == nil {
		t.measuring.Changed(s.Step)
	}
	return err
}

// HeldOut implements env.Measurer.
func (t *Learner) HeldOut() (sequences, tokens int) {
	for _, sequence := range t.heldOut {
		tokens += len(sequence)
	}
	return len(t.heldOut), tokens
}

// Measure implements env.Measurer.
func (t *Learner) Measure(ctx context.Context) (loss float64, err error) {
	defer t.busy()()
	return t.Evaluate(ctx, t.heldOut)
}

// Recompute implements env.Auditor.
func (t *Trainer) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	defer t.busy()()
	return t.Auditor.Recompute(ctx, x, batch)
}

// SaveOptimizer implements env.OptimizerSaver.
func (t *Learner) SaveOptimizer(ctx context.Context, limit int) (bytes int, write func(path string) error, err error) {
	state, err := t.LendOptimizerState(ctx)
	for _, tensor := range state.Tensors {
		bytes += len(tensor.Data)
	}
	if err == nil && bytes <= limit {
		state, err = t.OptimizerState(ctx)
	}
	return bytes, state.Write, err
}

// LoadOptimizer implements env.OptimizerSaver.
func (t *Learner) LoadOptimizer(ctx context.Context, path string) error {
	state, err := train.ReadOptimizerState(path)
	if err != nil {
		return err
	}
	return t.SetOptimizerState(ctx, state)
}
