package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// updater moves weights by their gradients: by AdamW with decoupled weight decay and bias correction
// (Loshchilov and Hutter, arXiv 1711.05101), or matrices by Muon. It is not safe for concurrent use.
type updater struct {
	place     place
	config    config.AdamW
	constants torch.AdamW
	updates   uint64     // number of updates so far: the t of the bias correction
	moments   [2]moments // running means of the gradient and of its square
	muon      *muon      // moves the hidden layers' matrices instead of AdamW; nil: AdamW moves all
	torn      bool       // a device failed while it changed the running means, which count as zeros then
}

// moments are tensors of the parameters' shapes, initially zero; nil for parameters without one.
type moments struct {
	name    string
	tensors []*torch.Tensor
}

func newUpdater(ctx context.Context, at place, c config.AdamW, m *muon) (*updater, error) {
	for _, beta := range c.Betas {
		if !(beta >= 0 && beta < 1) {
			return nil, fmt.Errorf("%w: betas %v, want numbers from 0 up to below 1", errUnsupported, c.Betas)
		}
	}
	if !(c.Eps >= 0) || !(c.WeightDecay >= 0) || !(c.ClipGradNorm >= 0) {
		return nil, fmt.Errorf("%w: eps %v, weight_decay %v, clip_grad_norm %v, want at least 0",
			errUnsupported, c.Eps, c.WeightDecay, c.ClipGradNorm)
	}
	u := &updater{place: at, config: c, moments: [2]moments{{name: firstMoment}, {name: secondMoment}}, muon: m}
	u.constants = torch.AdamW{Beta1: c.Betas[0], Beta2: c.Betas[1], Epsilon: c.Eps, WeightDecay: c.WeightDecay}
	for i := range u.moments {
		u.moments[i].tensors = make([]*torch.Tensor, len(at.store.parameters))
	}
	err := at.do(ctx, nil, func(s *torch.Scope, _ *apart, tensors []int) error {
		for _, n := range tensors {
			p := at.store.parameters[n]
			for i := range u.moments {
				if i == 0 || !u.byMuon(p) {
					u.moments[i].tensors[n] = s.Keep(s.Zeros(torch.F32, p.shape...))
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

// size returns the size of the running means in bytes.
func (u *updater) size() (bytes uint64) {
	for i, p := range u.place.store.parameters {
		for _, m := range u.moments {
			if m.tensors[i] != nil {
				bytes += 4 * uint64(len(p.weights))
			}
		}
	}
	return bytes
}

// byMuon reports whether Muon moves a parameter.
func (u *updater) byMuon(p parameter) bool { return u.muon != nil && weights.Hidden(p.name, p.shape) }

// update moves the weights by gradients, whose L2 norm is length. It runs to the end, except before
// each large matrix that Muon moves: there a cancelled ctx ends it with errTorn, and some weights
// have already moved. If a device fails, the weights on it are lost, and the running means become zeros.
func (u *updater) update(ctx context.Context, s *torch.Scope, rate float32, gradients []*torch.Tensor, length float64) error {
	if math.IsNaN(length) || math.IsInf(length, 0) {
		return fmt.Errorf("%w: gradient norm is %v", errNotFinite, length)
	}
	if u.torn {
		for _, mean := range u.means() {
			mean.CopyFrom(s.Zeros(torch.F32, mean.Shape()...))
		}
		u.updates, u.torn = 0, false
	}
	u.updates++
	u.place.changed()
	if u.place.on != nil { // a failure of libtorch is a panic, after which nothing more runs here
		u.torn = true
		u.place.lost()
	}
	scale := clipScale(length, u.config.ClipGradNorm)
	err := u.place.do(ctx, s, func(s *torch.Scope, on *apart, tensors []int) error {
		return u.move(ctx, s, on, tensors, rate, gradients, scale)
	})
	if err == nil && u.torn {
		u.place.changed()
	}
	if errors.Is(err, cuda.ErrMemory) && !errors.Is(err, errPartly) { // nothing has moved
		u.place.changed()
		u.updates--
		u.torn = false
	}
	if err == nil || errors.Is(err, errTorn) {
		u.torn = false
	}
	return err
}

// move moves the weights of some tensors by gradients times scale, on a device or, if on is nil, on the CPU.
func (u *updater) move(ctx context.Context, s *torch.Scope, on *apart, tensors []int, rate float32, gradients []*torch.Tensor, scale float64) error {
	weights := u.place.weights()
	there := on != nil && on.share != nil
	if there {
		if err := u.adamWThere(on, tensors, weights, gradients, rate, scale); err != nil {
			return err
		}
	}
	for _, i := range tensors {
		p := u.place.store.parameters[i]
		if there && !u.byMuon(p) {
			continue
		}
		if scale != 1 {
			gradients[i].MulScalarInPlace(scale)
		}
		if u.byMuon(p) {
			if err := ctx.Err(); err != nil && len(p.weights) > muonAtOnce {
				return fmt.Errorf("%w: %w", errTorn, err)
			}
			if err := u.muon.step(s, weights[i].Detach(), gradients[i], u.moments[0].tensors[i], float64(rate), u.config.WeightDecay); err != nil {
				return err
			}
			continue
		}
		u.constants.Step(weights[i], gradients[i], u.moments[0].tensors[i], u.moments[1].tensors[i], float64(rate), int64(u.updates))
	}
	return nil
}

// adamWThere moves the weights of some tensors by one step of AdamW, with the device's kernels. It omits the matrices of Muon.
func (u *updater) adamWThere(on *apart, tensors []int, weights, gradients []*torch.Tensor, rate float32, scale float64) error {
	defer on.conversions.Changed()
	of := func(all []*torch.Tensor) []cuda.Tensor { return addresses(pick(all, tensors)) }
	c := u.constants
	return on.share.AdamW(of(weights), of(gradients), of(u.moments[0].tensors), of(u.moments[1].tensors),
		cuda.AdamWParams{
			Beta1: c.Beta1, Beta2: c.Beta2, Epsilon: c.Epsilon, WeightDecay: c.WeightDecay,
			Rate: float64(rate), Clip: scale, Step: int64(u.updates),
		})
}

// reset resets the running means to zero.
func (u *updater) reset() error {
	err := u.each(func(s *torch.Scope, mean *torch.Tensor, _ int) {
		mean.CopyFrom(s.Zeros(torch.F32, mean.Shape()...))
	})
	u.updates, u.torn = 0, u.torn && err != nil
	return err
}

// means returns the running means.
func (u *updater) means() []*torch.Tensor {
	all := slices.Concat(u.moments[0].tensors, u.moments[1].tensors)
	return slices.DeleteFunc(all, func(mean *torch.Tensor) bool { return mean == nil })
}

// each calls f for each running mean, with its position in means, on the engine of its owner. The scope ends after the
// mean.
func (u *updater) each(f func(s *torch.Scope, mean *torch.Tensor, at int)) error {
	position := map[*torch.Tensor]int{}
	for at, mean := range u.means() {
		position[mean] = at
	}
	return u.place.do(context.Background(), nil, func(s *torch.Scope, _ *apart, tensors []int) error {
		for _, m := range u.moments {
			for _, mean := range pick(m.tensors, tensors) {
				if mean == nil {
					continue
				}
				err := s.Sub(func(s *torch.Scope) error {
					f(s, mean, position[mean])
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// free frees the running means on devices. The updater must not be used afterwards.
func (u *updater) free() error {
	return errors.Join(u.place.on.free(u.moments[0].tensors), u.place.on.free(u.moments[1].tensors))
}

// all returns the running means in the memory of the CPU: their own memory, or copies.
func (u *updater) all() (means [][]float32, err error) {
	if u.torn {
		if err := u.reset(); err != nil {
			return nil, err
		}
	}
	means = make([][]float32, len(u.means()))
	err = u.each(func(_ *torch.Scope, mean *torch.Tensor, at int) { means[at] = copied([]*torch.Tensor{mean})[0] })
	return means, err
}

// setAll overwrites the running means with the values that all returned.
func (u *updater) setAll(means [][]float32) error {
	err := u.each(func(s *torch.Scope, mean *torch.Tensor, at int) {
		mean.CopyFrom(s.FromFloat32s(means[at], mean.Shape()...))
	})
	u.torn = u.torn && err != nil
	return err
}

// addTo adds the running means to a state.
func (u *updater) addTo(state *OptimizerState, lend bool) error {
	means, err := u.all()
	if err != nil {
		return err
	}
	state.Updates = u.updates
	for _, m := range u.moments {
		values := make([][]float32, len(m.tensors))
		for i, mean := range m.tensors {
			if mean != nil {
				values[i], means = means[0], means[1:]
			}
		}
		state.add(m.name, u.place.store.parameters, values, lend)
	}
	return nil
}

// share returns objects that keep the memory of the running means.
func (u *updater) share() (memory []*torch.Memory) {
	for _, mean := range u.means() {
		memory = append(memory, mean.Share())
	}
	return memory
}

// setState restores the running means of the gradients and of their squares from a saved state.
func (u *updater) setState(state OptimizerState) error {
	var means [][]float32
	for _, m := range u.moments {
		have := func(j int) bool { return m.tensors[j] != nil }
		values, err := state.values(u.place.store.parameters, m.name, have)
		if err != nil {
			return err
		}
		for i, tensor := range values {
			if have(i) {
				means = append(means, tensor)
			}
			for _, value := range tensor {
				if !(math.Abs(float64(value)) <= math.MaxFloat32) || m.name == secondMoment && value < 0 {
					return fmt.Errorf("%w: optimizer state: %s holds %v", errModel, m.name, value)
				}
			}
		}
	}
	u.updates = state.Updates
	return u.setAll(means)
}
