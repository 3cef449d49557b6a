package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train/schedule"
)

// AdamW trains a model locally, with the optimizer of that name. Its methods are safe for
// concurrent use and wait for each other.
type AdamW struct {
	*replica
	updater  *updater
	schedule schedule.Schedule
}

// NewAdamW builds the model in memory; see New. It does not use RunID and TrainerID.
func NewAdamW(ctx context.Context, o Options) (*AdamW, error) {
	if o.Optimizer.AdamW == nil {
		return nil, fmt.Errorf("adamw trainer: %w: the optimizer must be AdamW", errUnsupported)
	}
	rates, err := schedule.New(o.LRSchedule)
	if err != nil {
		return nil, fmt.Errorf("adamw trainer: %w", err)
	}
	r, err := newTraining(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("adamw trainer: %w", err)
	}
	u, err := newUpdater(ctx, r.stayOnDevice(), *o.Optimizer.AdamW, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adamw trainer: %w", err), r.Close())
	}
	return &AdamW{replica: r, updater: u, schedule: rates}, nil
}

// Step trains on one batch and changes the weights. It returns the mean loss of the batch in nats
// per token, before the change. If it fails or ctx is cancelled, nothing has changed, unless a device fails
// while it moves the weights: then they are lost, and later calls return an error until Load.
func (a *AdamW) Step(ctx context.Context, step uint32, batch data.Batch) (loss float64, err error) {
	if err := a.lock(ctx); err != nil {
		return 0, fmt.Errorf("train step %d: %w", step, err)
	}
	defer a.unlock()
	err = a.gradient(ctx, batch, func(s *torch.Scope, mean float64, gradients []*torch.Tensor) error {
		loss = mean
		rate := a.schedule.LR(step)
		length, err := a.updater.place.norm(s, gradients)
		if err != nil {
			return err
		}
		if err := a.updater.update(ctx, s, rate, gradients, length); err != nil {
			return err
		}
		a.step = step
		a.statistics.tell(step, rate, length, func() (_, _ [][]float32) { return copied(gradients), nil })
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("train step %d: %w", step, err)
	}
	return loss, nil
}

func (a *AdamW) state(lend bool) (OptimizerState, error) {
	state := OptimizerState{Optimizer: "adamw", Step: a.step}
	return state, a.updater.addTo(&state, lend)
}
