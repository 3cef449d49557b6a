package train

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/model"
)

// OptimizerState returns a copy of the running means.
func (a *AdamW) OptimizerState(ctx context.Context) (OptimizerState, error) {
	if err := a.lock(ctx); err != nil {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w", err)
	}
	defer a.unlock()
	return a.state(false)
}

// SetOptimizerState continues from a state that was saved together with this model.
func (a *AdamW) SetOptimizerState(ctx context.Context, state OptimizerState) error {
	if err := a.lock(ctx); err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	defer a.unlock()
	if err := state.check("adamw", a.step); err != nil {
		return err
	}
	return a.updater.setState(state)
}

// Save writes the model and the running means of the same step to a folder. note adds the fields
// that only the caller knows. Save copies nothing, because there may not be enough memory to copy a
// large model.
func (a *AdamW) Save(ctx context.Context, dir string, note func(s *OptimizerState)) error {
	return a.save(ctx, dir, note, func() (OptimizerState, error) { return a.state(true) })
}

// OptimizerState returns a copy of the optimizer's state: the momentum of DisTrO, or the running
// means and the residual of local steps. If a result waits for Apply, the error wraps errStep.
func (t *Trainer) OptimizerState(ctx context.Context) (OptimizerState, error) {
	return t.stateOf(ctx, false)
}

// LendOptimizerState is OptimizerState without a copy. The next call that changes the optimizer's
// state changes the result. The result may be written even after Close.
func (t *Trainer) LendOptimizerState(ctx context.Context) (OptimizerState, error) {
	return t.stateOf(ctx, true)
}

func (t *Trainer) stateOf(ctx context.Context, lend bool) (OptimizerState, error) {
	if err := t.lock(ctx); err != nil {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w", err)
	}
	defer t.unlock()
	return t.exchange.state(lend)
}

// SetOptimizerState continues from a state that was saved together with this model. If results are
// audited, it only resets the optimizer, because auditors could not verify the origin of a saved
// state.
func (t *Trainer) SetOptimizerState(ctx context.Context, state OptimizerState) error {
	if err := t.lock(ctx); err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	defer t.unlock()
	return t.exchange.setState(state)
}

// Save writes the model and the optimizer's state to a folder, as AdamW.Save does. If a
// result waits for Apply, the error wraps errStep.
func (t *Trainer) Save(ctx context.Context, dir string, note func(s *OptimizerState)) error {
	return t.save(ctx, dir, note, func() (OptimizerState, error) { return t.exchange.state(true) })
}

func (r *replica) save(ctx context.Context, dir string, note func(s *OptimizerState), optimizer func() (OptimizerState, error)) error {
	if err := r.lock(ctx); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	defer r.unlock()
	s, err := r.snapshot(ctx, model.Lend)
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	state, err := optimizer()
	if err != nil {
		return err
	}
	note(&state)
	return checkpoint.WriteDir(dir, s, checkpoint.Extra{Name: OptimizerFile, Write: state.Write})
}
