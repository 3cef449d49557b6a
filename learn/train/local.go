package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

// localExchange trains by many steps of AdamW or Muon in each round, and exchanges the resulting
// pseudo-gradient (package localsteps). It implements exchange.
type localExchange struct {
	replica  *replica
	rounds   *rounds
	residual *residual
	timings  timings
	moves    comparisons // steps in which devices moved weights by results
}

// encode makes the steps of a round on the parts of the batch, and returns the bytes of the result
// with the mean loss of the steps. It then restores the weights. If it fails, the running means may
// include gradients of the steps made so far.
func (e *localExchange) encode(ctx context.Context, header codec.Header, batch data.Batch, begun func() error) (payload []byte, loss float64, err error) {
	step := header.Step
	if e.residual.trained(step) {
		return nil, 0, fmt.Errorf("%w: already trained", errStep)
	}
	if err := e.settle(ctx); err != nil {
		return nil, 0, err
	}
	at := e.rounds.inner.place
	back, err := e.replica.keepOn(ctx, at.on)
	if err != nil {
		return nil, 0, err
	}
	payload, loss, err = e.steps(ctx, at, header, batch, begun)
	failed := back()
	if inner := e.rounds.inner; inner.torn || errors.Is(err, cuda.ErrMemory) {
		e.residual.unsent.(*resident).failed = err
		// A failed allocation changes nothing: each running mean is from before the step or from after it.
		inner.torn = inner.torn && !LacksMemory(err)
	}
	if failed = errors.Join(failed, e.settle(ctx)); failed != nil {
		if err == nil {
			err = e.residual.undo(step)
		}
		return nil, 0, errors.Join(failed, err)
	}
	return payload, loss, err
}

// settle deals with the failure of a device: it makes the optimizer stay there (see resident.stays) or leave the
// devices. If the optimizer must leave, but the CPU cannot get the weights, settle returns an error, and nothing has
// changed.
func (e *localExchange) settle(ctx context.Context) error {
	there, ok := e.residual.unsent.(*resident)
	if !ok || there.failed == nil || there.stays(e.replica.log) {
		return nil
	}
	if err := e.replica.parallel.bring(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(there.failed, err)
	}
	return e.leaveDevices(there.failed)
}

// steps makes the steps of a round at a place, where it moves the weights.
func (e *localExchange) steps(ctx context.Context, at place, header codec.Header, batch data.Batch, begun func() error) (payload []byte, loss float64, err error) {
	step, audited := header.Step, e.residual.history != nil
	if audited { // the running means start as zeros in each round
		if err := e.rounds.inner.reset(); err != nil {
			return nil, 0, err
		}
	} else if err := e.moveByOwn(at, step-1, 1); err != nil {
		return nil, 0, err
	}
	loss, _, err = e.rounds.train(ctx, step, batch, 0, func(rate float32, length float64, gradients []*torch.Tensor) {
		e.replica.statistics.tell(step, rate, length, func() (_, _ [][]float32) {
			return copied(gradients), e.residual.unsent.readInside()
		})
	})
	if err != nil {
		return nil, 0, err
	}
	e.timings.took(step, partGradient, e.rounds.took)
	if err := begun(); err != nil {
		return nil, 0, err
	}
	defer e.timings.ended(step, partEncode, time.Now())
	if !audited {
		if err := e.moveByOwn(at, step-1, -1); err != nil {
			return nil, 0, err
		}
	}
	err = at.engine().Do(context.WithoutCancel(ctx), false, func(s *torch.Scope) error {
		far, err := e.far(s, at)
		if err == nil {
			payload, err = e.residual.encode(header, far, e.rounds.rates.lr(step))
		}
		return err
	})
	return payload, loss, err
}

// far replaces the weights at a place by the pseudo-gradient of the steps since they were kept.
func (e *localExchange) far(s *torch.Scope, at place) (vectors, error) {
	at.changed()
	if at.on == nil {
		weights := e.replica.weights()
		return vectors{here: weights}, e.residual.far(e.replica.kept, weights)
	}
	weights := at.weights()
	return vectors{there: weights, scope: s}, e.residual.farThere(s, at.on, weights)
}

// moveByOwn moves the weights at a place by this trainer's own result of a step, times factor, if that
// result still waits to be applied with the others, as with an apply_lag of 2. A factor of -1 moves them
// back. Without this move, a round would start from almost the same weights as the previous round
// and repeat its steps. Runs with audits do not make this move, because auditors would need the
// waiting result as well.
func (e *localExchange) moveByOwn(at place, step uint32, factor float32) error {
	change, found, err := e.residual.own(step, factor)
	if err == nil && found {
		at.changed()
		if at.on != nil {
			defer at.on.converted()
			err = at.on.addBack(at.weights(), change)
		} else {
			here := buffers{kernel: e.residual.kernel, layouts: e.residual.layouts, now: e.replica.weights()}
			err = here.addBack(change)
		}
	}
	if err != nil {
		return fmt.Errorf("own result of step %d: %w", step, err)
	}
	return nil
}

// move changes the weights by results and their votes. Without results nothing changes.
func (e *localExchange) move(ctx context.Context, step uint32, results [][]codec.TensorResult, votes distro.Votes) error {
	lr := e.rounds.rates.lr(step)
	here := func(weights [][]float32) error {
		for i, w := range weights {
			if err := e.residual.apply(i, results, votes, w, lr); err != nil {
				return fmt.Errorf("tensor %d: %w", i, err)
			}
		}
		return nil
	}
	if e.replica.parallel.home() == nil {
		e.replica.changed()
		return here(e.replica.weights())
	}
	failure, err := e.replica.moveThere(ctx, !empty(results) && e.moves.next(), func(a *apart) error {
		return a.kernels.ApplyLevels(results, addresses(a.weights()), e.residual.applyParams(votes, lr))
	}, here)
	if there, ok := e.residual.unsent.(*resident); ok && failure != nil {
		there.failed = errors.Join(there.failed, failure)
		err = e.settle(ctx)
	}
	return err
}

// leaveDevices makes the optimizer continue on the CPU, from the store's weights, which must be fresh.
// State that the device does not return begins as zeros again.
func (e *localExchange) leaveDevices(because error) error {
	r, inner := e.residual, e.rounds.inner
	defer r.history.lock()()
	means, err := inner.all()
	here, failed := r.unsent.(*resident).leave()
	if failed != nil && r.history != nil {
		r.history.forget()
	}
	r.unsent = here
	if r.history != nil {
		r.history.values = here
	}
	if r.outer != nil {
		outer, lost := r.outer.(*resident).leave()
		r.outer, failed = outer, errors.Join(failed, lost)
	}
	e.replica.log.Warn("the optimizer's kernels failed on the device: the optimizer continues on the CPU, and weights will be copied to the device for every step",
		"because", errors.Join(because, err, failed, e.replica.parallel.leave()))
	left := *inner
	moved, failed := newUpdater(context.Background(), place{store: e.replica.store}, inner.config, inner.muon)
	if failed != nil {
		return failed
	}
	if *inner = *moved; err == nil {
		inner.updates = left.updates
		failed = inner.setAll(means)
	}
	return errors.Join(failed, left.free())
}

// finalize does not fail with a device, because the weights have moved: the next step settles the failure.
func (e *localExchange) finalize(step uint32, counted bool) error {
	err := e.residual.finalize(step, counted)
	if there, ok := e.residual.unsent.(*resident); ok && there.failed != nil {
		return nil
	}
	return err
}

func (e *localExchange) reset() error {
	return errors.Join(e.rounds.inner.reset(), e.residual.reset())
}

func (e *localExchange) state(lend bool) (OptimizerState, error) {
	r, inner := e.residual, e.rounds.inner
	defer r.history.lock()()
	if len(r.sent) > 0 {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w: a trained step was not applied yet", errStep)
	}
	state := OptimizerState{Optimizer: "localsteps", Step: e.replica.step}
	unsent, err := r.unsent.read()
	var outer [][]float32
	if err == nil && r.outer != nil {
		outer, err = r.outer.read()
	}
	if err == nil {
		err = inner.addTo(&state, lend)
	}
	if err != nil {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w", err)
	}
	for i := range e.replica.parameters {
		one := e.replica.parameters[i : i+1]
		state.add(unsentName, one, unsent[i:i+1], lend)
		if outer != nil {
			state.add(outerMomentumName, one, outer[i:i+1], lend)
		}
	}
	if lend {
		state.memory = inner.share()
	}
	return state, nil
}

func (e *localExchange) setState(state OptimizerState) error {
	r := e.residual
	if err := state.check("localsteps", e.replica.step); err != nil {
		return err
	}
	sums, err := state.values(e.replica.parameters, unsentName, nil)
	if err != nil {
		return err
	}
	var momenta [][]float32
	if r.outer != nil {
		if momenta, err = state.values(e.replica.parameters, outerMomentumName, nil); err != nil {
			return err
		}
	}
	if length := norm(slices.Concat(sums, momenta)); !(length <= maxUpdate) {
		return fmt.Errorf("%w: optimizer state is out of range", errModel)
	}
	if r.history != nil {
		if err := e.reset(); err != nil {
			return err
		}
		e.replica.log.Info("residual reset: with audits it must continue from a result of this process")
		return nil
	}
	if err := e.rounds.inner.setState(state); err != nil {
		return err
	}
	r.fed, r.sent = 0, map[uint32]sentSums{}
	if r.outer != nil {
		if err := r.outer.write(momenta); err != nil {
			return err
		}
	}
	return r.unsent.write(sums)
}
