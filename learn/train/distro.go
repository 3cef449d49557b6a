package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/torch"
)

// distroExchange trains and exchanges results with DisTrO. It implements exchange.
type distroExchange struct {
	replica   *replica
	rates     *rates
	timings   timings
	optimizer *optimizer
	moves     comparisons // steps in which devices moved weights by coefficients
}

// encode computes the gradient of the batch, adds it to the momentum, and returns the bytes of the
// largest coefficients.
func (e *distroExchange) encode(ctx context.Context, header codec.Header, batch data.Batch, begun func() error) (payload []byte, loss float64, err error) {
	step := header.Step
	if err := e.settle(ctx); err != nil {
		return nil, 0, err
	}
	if e.optimizer.config.Lookahead {
		back, failure := e.lookAhead(ctx, e.rates.lr(max(step, 1)-1))
		if failure != nil {
			return nil, 0, failure
		}
		defer func() { err = errors.Join(err, back()) }()
	}
	started := time.Now()
	err = e.replica.gradient(ctx, batch, func(s *torch.Scope, mean float64, tensors []*torch.Tensor) error {
		loss = mean
		gradients, momentum := e.vectors(s, tensors), e.optimizer.momentum
		length, err := momentum.norm(gradients) // waits for the end of the backward pass on a device
		if err != nil {
			return err
		}
		e.timings.ended(step, partGradient, started)
		if err := begun(); err != nil {
			return err
		}
		defer e.timings.ended(step, partEncode, time.Now())
		lr := e.rates.lr(step)
		if payload, err = e.optimizer.encode(header, gradients, length, lr); err == nil {
			e.replica.statistics.tell(step, lr, length, func() (_, _ [][]float32) { return copied(tensors), momentum.readInside() })
		}
		return err
	})
	if failed := e.settle(ctx); failed != nil {
		if err == nil {
			err = e.optimizer.undo(step)
		}
		return nil, 0, errors.Join(failed, err)
	}
	return payload, loss, err
}

// settle deals with the failure of a device: it makes the optimizer stay there (see resident.stays) or leave the
// devices. If the optimizer must leave, but the CPU cannot get the weights, settle returns an error, and nothing has
// changed.
func (e *distroExchange) settle(ctx context.Context) error {
	there, ok := e.optimizer.momentum.(*resident)
	if !ok || there.failed == nil || there.stays(e.replica.log) {
		return nil
	}
	if err := e.replica.parallel.bring(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(there.failed, err)
	}
	e.leaveDevices(there.failed)
	return nil
}

// vectors returns gradients in the form that the momentum needs.
func (e *distroExchange) vectors(s *torch.Scope, gradients []*torch.Tensor) vectors {
	if e.replica.parallel.home() != nil {
		return vectors{there: gradients, scope: s}
	}
	return vectors{here: float32s(gradients)}
}

// lookAhead moves the model to the weights that it would have if the momentum not yet sent were
// applied. The returned function restores the model from a copy of its bits, because arithmetic
// cannot undo the rounding of a step.
func (e *distroExchange) lookAhead(ctx context.Context, lr float32) (back func() error, err error) {
	r := e.replica
	if back, err = r.keepOn(ctx, r.parallel.resides()); err != nil {
		return nil, err
	}
	if there, ok := e.optimizer.momentum.(*resident); ok {
		weights := there.on.weights()
		err := there.each(func(_ *torch.Scope, i int) error {
			weights[i].Detach().AddInPlace(there.now[i].Sign(), -float64(lr))
			return nil
		})
		place{r.store, there.on}.changed()
		if err != nil {
			return nil, errors.Join(err, back())
		}
		return back, nil
	}
	values, err := e.optimizer.momentum.read()
	if err != nil {
		return nil, err
	}
	for i, w := range r.weights() {
		ahead(w, values[i], lr)
	}
	r.changed()
	return back, nil
}

// ahead moves every weight by lr against the sign of its momentum. A branch on the sign would be
// mispredicted half of the time.
func ahead(weights, momentum []float32, lr float32) {
	const sign = 1 << 31
	size := math.Float32bits(lr) &^ sign
	for i, m := range momentum {
		if m != 0 {
			weights[i] -= math.Float32frombits(size | math.Float32bits(m)&sign)
		}
	}
}

// move applies results to the weights: on the devices that have kernels, else on the CPU.
func (e *distroExchange) move(ctx context.Context, step uint32, results [][]codec.TensorResult, votes distro.Votes) error {
	r, lr := e.replica, e.rates.lr(step)
	here := func(weights [][]float32) error { return e.optimizer.apply(weights, results, votes, lr) }
	if r.parallel.home() == nil {
		r.changed()
		return here(r.weights())
	}
	params, err := e.optimizer.applyParams(votes, lr)
	if err != nil {
		return err
	}
	failure, err := r.moveThere(ctx, lr > 0 && !empty(results) && e.moves.next(), func(a *apart) error {
		return a.kernels.Apply(results, addresses(a.weights()), params)
	}, here)
	if there, ok := e.optimizer.momentum.(*resident); ok && failure != nil {
		there.failed = errors.Join(there.failed, failure)
		err = e.settle(ctx)
	}
	return err
}

// leaveDevices makes the optimizer continue on the CPU, from the store's weights, which must be fresh.
func (e *distroExchange) leaveDevices(because error) {
	r, o := e.replica, e.optimizer
	defer o.history.lock()()
	here, err := o.momentum.(*resident).leave()
	if err != nil && o.history != nil {
		o.history.forget()
	}
	o.momentum = here
	if o.history != nil {
		o.history.values = here
	}
	r.log.Warn("the optimizer's kernels failed on the device: the optimizer continues on the CPU, and weights will be copied to the device for every step",
		"because", errors.Join(because, err, r.parallel.leave()))
}

// empty reports whether results have no coefficients, such as the first results after a cold start.
// Applying such results shows little about the arithmetic of a device.
func empty(results [][]codec.TensorResult) bool {
	for _, result := range results {
		for _, tensor := range result {
			if slices.ContainsFunc(tensor.Counts, func(n uint16) bool { return n > 0 }) {
				return false
			}
		}
	}
	return true
}

// finalize does not fail with a device, because the weights have moved: the next step settles the failure.
func (e *distroExchange) finalize(step uint32, counted bool) error {
	err := e.optimizer.finalize(step, counted)
	if there, ok := e.optimizer.momentum.(*resident); ok && there.failed != nil {
		return nil
	}
	return err
}

func (e *distroExchange) reset() error { return e.optimizer.reset() }

func (e *distroExchange) state(lend bool) (OptimizerState, error) {
	o := e.optimizer
	defer o.history.lock()()
	if len(o.sent) > 0 {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w: a trained step was not applied yet", errStep)
	}
	state := OptimizerState{Optimizer: "distro", Step: e.replica.step, Updates: o.encoded}
	if o.newest != e.replica.step {
		state.Trained = o.newest
	}
	values, err := o.momentum.read()
	if err != nil {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w", err)
	}
	state.add(momentumName, e.replica.parameters, values, lend)
	return state, nil
}

// setState continues from a saved momentum. If results are audited, it only resets the momentum,
// because auditors could not verify the origin of a saved one.
func (e *distroExchange) setState(state OptimizerState) error {
	o := e.optimizer
	if err := state.check("distro", e.replica.step); err != nil {
		return err
	}
	values, err := state.values(e.replica.parameters, momentumName, nil)
	if err != nil {
		return err
	}
	if length := norm(values); !(length <= maxUpdate) {
		return fmt.Errorf("%w: optimizer state is out of range", errModel)
	}
	if err := o.reset(); err != nil {
		return err
	}
	if o.history != nil {
		e.replica.log.Info("momentum reset: with audits it must continue from a result of this process")
		return nil
	}
	if err := o.momentum.write(values); err != nil {
		return err
	}
	o.encoded, o.newest = state.Updates, state.Step
	if state.Trained != 0 {
		o.newest = state.Trained
	}
	return nil
}
