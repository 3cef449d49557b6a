package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train/schedule"
	"github.com/psyche-go/psyche/record/config"
)

// AdamW trains a model locally with decoupled weight decay and bias correction (Loshchilov and
// Hutter, arXiv 1711.05101). Its methods are safe for concurrent use and wait for each other.
type AdamW struct {
	*replica
	config    config.AdamW
	constants torch.AdamW
	schedule  schedule.Schedule
	updates   uint64     // number of updates so far: the t of the bias correction
	moments   [2]moments // running means of the gradient and of its square
	muon      *muon      // moves the hidden layers' matrices instead of AdamW; nil: AdamW moves all
}

// moments are tensors of the parameters' shapes, initially zero; nil for parameters without one.
type moments struct {
	name    string
	tensors []*torch.Tensor
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
	a, err := newAdamW(ctx, r, *o.Optimizer.AdamW, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("adamw trainer: %w", err), r.Close())
	}
	a.schedule = rates
	return a, nil
}

// newAdamW returns the optimizer of a replica, without a schedule.
func newAdamW(ctx context.Context, r *replica, c config.AdamW, m *muon) (*AdamW, error) {
	for _, beta := range c.Betas {
		if !(beta >= 0 && beta < 1) {
			return nil, fmt.Errorf("%w: betas %v, want numbers from 0 up to below 1", errUnsupported, c.Betas)
		}
	}
	if !(c.Eps >= 0) || !(c.WeightDecay >= 0) || !(c.ClipGradNorm >= 0) {
		return nil, fmt.Errorf("%w: eps %v, weight_decay %v, clip_grad_norm %v, want at least 0",
			errUnsupported, c.Eps, c.WeightDecay, c.ClipGradNorm)
	}
	a := &AdamW{replica: r, config: c, moments: [2]moments{{name: "exp_avg"}, {name: secondMoment}}, muon: m}
	a.constants = torch.AdamW{Beta1: c.Betas[0], Beta2: c.Betas[1], Epsilon: c.Eps, WeightDecay: c.WeightDecay}
	err := r.engine.Do(ctx, false, func(s *torch.Scope) error {
		for _, p := range r.parameters {
			for i := range a.moments {
				var mean *torch.Tensor
				if i == 0 || !a.byMuon(p) {
					mean = s.Keep(s.Zeros(torch.F32, p.shape...))
				}
				a.moments[i].tensors = append(a.moments[i].tensors, mean)
			}
		}
		return nil
	})
	return a, err
}

// byMuon reports whether Muon moves a parameter.
func (a *AdamW) byMuon(p parameter) bool { return a.muon != nil && hidden(p.name, p.shape) }

// Step trains on one batch and changes the weights. It returns the mean loss of the batch in nats
// per token, before the change. If it fails or ctx is cancelled, nothing has changed.
func (a *AdamW) Step(ctx context.Context, step uint32, batch data.Batch) (loss float64, err error) {
	if err := a.lock(ctx); err != nil {
		return 0, fmt.Errorf("train step %d: %w", step, err)
	}
	defer a.unlock()
	err = a.gradient(ctx, batch, func(s *torch.Scope, mean float64, gradients []*torch.Tensor) error {
		loss = mean
		values, rate := float32s(gradients), a.schedule.LR(step)
		length := norm(values)
		if err := a.update(ctx, s, rate, gradients, length); err != nil {
			return err
		}
		a.step = step
		a.statistics.tell(step, rate, length, values, nil)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("train step %d: %w", step, err)
	}
	return loss, nil
}

// update moves the weights by gradients, whose L2 norm is length. It runs to the end, except before
// each large matrix that Muon moves: there a cancelled ctx ends it with errTorn, and some weights
// have already moved.
func (a *AdamW) update(ctx context.Context, s *torch.Scope, rate float32, gradients []*torch.Tensor, length float64) error {
	if math.IsNaN(length) || math.IsInf(length, 0) {
		return fmt.Errorf("%w: gradient norm is %v", errNotFinite, length)
	}
	scale := clipScale(length, a.config.ClipGradNorm)
	a.updates++
	a.changed()
	for i, p := range a.parameters {
		if scale != 1 {
			gradients[i].MulScalarInPlace(scale)
		}
		if a.byMuon(p) {
			if err := ctx.Err(); err != nil && len(p.weights) > muonAtOnce {
				return fmt.Errorf("%w: %w", errTorn, err)
			}
			if err := a.muon.step(s, p.tensor, gradients[i], a.moments[0].tensors[i], float64(rate), a.config.WeightDecay); err != nil {
				return err
			}
			continue
		}
		a.constants.Step(p.tensor, gradients[i], a.moments[0].tensors[i], a.moments[1].tensors[i], float64(rate), int64(a.updates))
	}
	return nil
}

// forget resets the running means to zero.
func (a *AdamW) forget() {
	for _, mean := range a.all() {
		clear(mean)
	}
	a.updates = 0
}

// all returns the memory of the running means.
func (a *AdamW) all() [][]float32 {
	return slices.Concat(float32s(a.moments[0].tensors), float32s(a.moments[1].tensors))
}
