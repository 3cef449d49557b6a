package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
)

// distroExchange trains and exchanges results with DisTrO. It implements exchange.
type distroExchange struct {
	replica   *replica
	rates     *rates
	timings   timings
	optimizer *optimizer
}

// encode computes the gradient of the batch, adds it to the momentum, and returns the bytes of the
// largest coefficients.
func (e *distroExchange) encode(ctx context.Context, header codec.Header, batch data.Batch, begun func() error) (payload []byte, loss float64, err error) {
	step := header.Step
	if e.optimizer.config.Lookahead {
		defer e.lookAhead(e.rates.lr(max(step, 1) - 1))()
	}
	err = e.replica.gradient(ctx, batch, func(_ *torch.Scope, mean float64, tensors []*torch.Tensor) error {
		gradients := float32s(tensors)
		loss = mean
		if err := begun(); err != nil {
			return err
		}
		defer e.timings.ended(step, partEncode, time.Now())
		var err error
		length, lr := norm(gradients), e.rates.lr(step)
		if payload, err = e.optimizer.encode(header, gradients, length, lr); err == nil {
			e.replica.statistics.tell(step, lr, length, gradients, e.optimizer.momentum.now)
		}
		return err
	})
	return payload, loss, err
}

// lookAhead moves the model to the weights that it would have if the momentum not yet sent were
// applied. The returned function restores the model from a copy of its bits, because arithmetic
// cannot undo the rounding of a step.
func (e *distroExchange) lookAhead(lr float32) (back func()) {
	back = e.replica.keep()
	for i, w := range e.replica.weights() {
		ahead(w, e.optimizer.momentum.now[i], lr)
	}
	e.replica.changed()
	return back
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

// move applies results to the weights and, concurrently, to the copies on devices with an applier.
// These copies then have the same bits and need no refresh. From time to time, they are compared
// with the weights. A copy that differed before, for example because of lookahead, is not moved,
// and gets its next refresh; so does a copy whose applier fails.
func (e *distroExchange) move(ctx context.Context, step uint32, results [][]codec.TensorResult) error {
	r, lr := e.replica, e.rates.lr(step)
	var copies []*apart
	for _, a := range r.parallel.apart() {
		if a.applier != nil && a.seen == r.changes {
			copies = append(copies, a)
		}
	}
	r.changed() // all copies need a refresh, until they are known to be equal
	var group sync.WaitGroup
	failures := make([]error, len(copies))
	for i, a := range copies {
		group.Go(func() { failures[i] = a.move(context.WithoutCancel(ctx), e.optimizer, results, lr) })
	}
	err := e.optimizer.apply(r.weights(), results, lr)
	group.Wait()
	if err != nil {
		return err
	}
	telling := lr > 0 && !empty(results)
	for i, a := range copies {
		failure := failures[i]
		if failure == nil && telling {
			failure = a.check(context.WithoutCancel(ctx))
		}
		if failure == nil {
			a.seen = r.changes
			continue
		}
		r.log.Warn("the optimizer's kernels failed on the device: weights will be copied there for every step from now on",
			"device", a.twin.Engine().Device().String(), "because", errors.Join(failure, a.closeMover()))
	}
	return nil
}

// empty reports whether results have no coefficients, such as the first results after a cold start.
// Applying such results shows little about the applier's arithmetic.
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

func (e *distroExchange) finalize(step uint32, counted bool) error {
	return e.optimizer.finalize(step, counted)
}

func (e *distroExchange) reset() { e.optimizer.reset() }

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
	state.add(momentumName, e.replica.parameters, o.momentum.now, lend)
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
	o.reset()
	if o.history != nil {
		e.replica.log.Info("momentum reset: with audits it must continue from a result of this process")
		return nil
	}
	copyAll(o.momentum.now, values)
	o.encoded, o.newest = state.Updates, state.Step
	if state.Trained != 0 {
		o.newest = state.Trained
	}
	return nil
}
