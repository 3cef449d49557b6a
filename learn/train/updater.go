package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// updater moves weights by their gradients: by AdamW with decoupled weight decay and bias correction
// (Loshchilov and Hutter, arXiv 1711.05101), or matrices by Muon. It is not safe for concurrent use.
type updater struct {
	store     *store
	config    config.AdamW
	constants torch.AdamW
	updates   uint64     // number of updates so far: the t of the bias correction
	moments   [2]moments // running means of the gradient and of its square
	muon      *muon      // moves the hidden layers' matrices instead of AdamW; nil: AdamW moves all
}

// moments are tensors of the parameters' shapes, initially zero; nil for parameters without one.
type moments struct {
	name    string
	tensors []*torch.Tensor
}

func newUpdater(ctx context.Context, of *store, c config.AdamW, m *muon) (*updater, error) {
	for _, beta := range c.Betas {
		if !(beta >= 0 && beta < 1) {
			return nil, fmt.Errorf("%w: betas %v, want numbers from 0 up to below 1", errUnsupported, c.Betas)
		}
	}
	if !(c.Eps >= 0) || !(c.WeightDecay >= 0) || !(c.ClipGradNorm >= 0) {
		return nil, fmt.Errorf("%w: eps %v, weight_decay %v, clip_grad_norm %v, want at least 0",
			errUnsupported, c.Eps, c.WeightDecay, c.ClipGradNorm)
	}
	u := &updater{store: of, config: c, moments: [2]moments{{name: firstMoment}, {name: secondMoment}}, muon: m}
	u.constants = torch.AdamW{Beta1: c.Betas[0], Beta2: c.Betas[1], Epsilon: c.Eps, WeightDecay: c.WeightDecay}
	err := of.engine.Do(ctx, false, func(s *torch.Scope) error {
		for _, p := range of.parameters {
			for i := range u.moments {
				var mean *torch.Tensor
				if i == 0 || !u.byMuon(p) {
					mean = s.Keep(s.Zeros(torch.F32, p.shape...))
				}
				u.moments[i].tensors = append(u.moments[i].tensors, mean)
			}
		}
		return nil
	})
	return u, err
}

// byMuon reports whether Muon moves a parameter.
func (u *updater) byMuon(p parameter) bool { return u.muon != nil && hidden(p.name, p.shape) }

// update moves the weights by gradients, whose L2 norm is length. It runs to the end, except before
// each large matrix that Muon moves: there a cancelled ctx ends it with errTorn, and some weights
// have already moved.
func (u *updater) update(ctx context.Context, s *torch.Scope, rate float32, gradients []*torch.Tensor, length float64) error {
	if math.IsNaN(length) || math.IsInf(length, 0) {
		return fmt.Errorf("%w: gradient norm is %v", errNotFinite, length)
	}
	scale := clipScale(length, u.config.ClipGradNorm)
	u.updates++
	u.store.changed()
	for i, p := range u.store.parameters {
		if scale != 1 {
			gradients[i].MulScalarInPlace(scale)
		}
		if u.byMuon(p) {
			if err := ctx.Err(); err != nil && len(p.weights) > muonAtOnce {
				return fmt.Errorf("%w: %w", errTorn, err)
			}
			if err := u.muon.step(s, p.tensor, gradients[i], u.moments[0].tensors[i], float64(rate), u.config.WeightDecay); err != nil {
				return err
			}
			continue
		}
		u.constants.Step(p.tensor, gradients[i], u.moments[0].tensors[i], u.moments[1].tensors[i], float64(rate), int64(u.updates))
	}
	return nil
}

// reset resets the running means to zero.
func (u *updater) reset() {
	clearAll(u.all())
	u.updates = 0
}

// all returns the memory of the running means.
func (u *updater) all() [][]float32 {
	return slices.Concat(float32s(u.moments[0].tensors), float32s(u.moments[1].tensors))
}

// addTo adds the running means to a state.
func (u *updater) addTo(state *OptimizerState, lend bool) {
	state.Updates = u.updates
	for _, m := range u.moments {
		state.add(m.name, u.store.parameters, float32s(m.tensors), lend)
	}
}

// share returns objects that keep the memory of the running means.
func (u *updater) share() (memory []*torch.Memory) {
	for _, mean := range slices.Concat(u.moments[0].tensors, u.moments[1].tensors) {
		if mean != nil {
			memory = append(memory, mean.Share())
		}
	}
	return memory
}

// setState restores the running means of the gradients and of their squares from a saved state.
func (u *updater) setState(state OptimizerState) error {
	var values [2][][]float32
	for i, m := range u.moments {
		var err error
		have := func(j int) bool { return m.tensors[j] != nil }
		if values[i], err = state.values(u.store.parameters, m.name, have); err != nil {
			return err
		}
		for _, tensor := range values[i] {
			for _, value := range tensor {
				if !(math.Abs(float64(value)) <= math.MaxFloat32) || m.name == secondMoment && value < 0 {
					return fmt.Errorf("%w: optimizer state: %s holds %v", errModel, m.name, value)
				}
			}
		}
	}
	for i, m := range u.moments {
		copyAll(float32s(m.tensors), values[i])
	}
	u.updates = state.Updates
	return nil
}
