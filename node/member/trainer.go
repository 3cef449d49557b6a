package member

import (
	"context"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/learn/train/dummy"
	"github.com/psyche-go/psyche/node/env"
)

// Trainer is the trainer of a member.
type Trainer struct {
	*train.Trainer
	measuring Measuring
}

var (
	_ env.Trainer         = (*Trainer)(nil)
	_ env.Auditor         = (*Trainer)(nil)
	_ env.OptimizerKeeper = (*Trainer)(nil)

	_ env.Trainer = (*dummy.Trainer)(nil)
	_ env.Trainer = (*dummy.Audited)(nil)
	_ env.Auditor = (*dummy.Audited)(nil)
)

// New makes the trainer of a member. Measuring may be nil.
func New(t *train.Trainer, m Measuring) *Trainer {
	if m == nil {
		m = unmeasured{}
	}
	return &Trainer{t, m}
}

// Measuring uses a trainer's model while the training does not need it. All methods return at once.
type Measuring interface {
	// Use begins with the model of a trainer, which was made of a snapshot.
	Use(t *train.Trainer, s checkpoint.Snapshot)
	// Forget ends it, before the trainer is closed.
	Forget()
	// Busy says that the training needs the model, until done is called.
	Busy() (done func())
	// Changed says of which step the model is now.
	Changed(step uint32)
}

// unmeasured uses nothing.
type unmeasured struct{}

func (unmeasured) Use(*train.Trainer, checkpoint.Snapshot) {}
func (unmeasured) Forget()                                 {}
func (unmeasured) Busy() (done func())                     { return func() {} }
func (unmeasured) Changed(uint32)                          {}

// Train implements env.Trainer.
func (t *Trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	defer t.measuring.Busy()()
	return t.Trainer.Train(ctx, step, batch, begun)
}

// Apply implements env.Trainer.
func (t *Trainer) Apply(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) error {
	defer t.measuring.Busy()()
	err := t.Trainer.Apply(ctx, step, payloads, ownCounted)
	if err == nil {
		t.measuring.Changed(step)
	}
	return err
}

// Snapshot implements env.Trainer.
func (t *Trainer) Snapshot(ctx context.Context) (checkpoint.Snapshot, error) {
	defer t.measuring.Busy()()
	return t.Trainer.Snapshot(ctx)
}

// Load implements env.Trainer.
func (t *Trainer) Load(ctx context.Context, s checkpoint.Snapshot) error {
	defer t.measuring.Busy()()
	err := t.Trainer.Load(ctx, s)
	if err == nil {
		t.measuring.Changed(s.Step)
	}
	return err
}

// Recompute implements env.Auditor.
func (t *Trainer) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	defer t.measuring.Busy()()
	return t.Trainer.Recompute(ctx, x, batch)
}

// SaveOptimizer implements env.OptimizerKeeper.
func (t *Trainer) SaveOptimizer(ctx context.Context, path string) error {
	state, err := t.OptimizerState(ctx)
	if err != nil {
		return err
	}
	return state.Write(path)
}

// LoadOptimizer implements env.OptimizerKeeper.
func (t *Trainer) LoadOptimizer(ctx context.Context, path string) error {
	state, err := train.ReadOptimizerState(path)
	if err != nil {
		return err
	}
	return t.SetOptimizerState(ctx, state)
}
