package train

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
)

// localExchange trains by many steps of AdamW or Muon in each round, and exchanges the resulting
// pseudo-gradient (package localsteps). It implements exchange.
type localExchange struct {
	replica  *replica
	rounds   *rounds
	residual *residual
	timings  timings
}

// encode makes the steps of a round on the parts of the batch, and returns the bytes of the result
// with the mean loss of the steps. It then restores the weights. If it fails, the running means may
// include gradients of the steps made so far.
func (e *localExchange) encode(ctx context.Context, header codec.Header, batch data.Batch, begun func() error) (payload []byte, loss float64, err error) {
	step, audited := header.Step, e.residual.history != nil
	if e.residual.trained(step) {
		return nil, 0, fmt.Errorf("%w: already trained", errStep)
	}
	defer e.replica.keep()()
	if audited { // the running means start as zeros in each round
		e.rounds.inner.reset()
	} else if err := e.moveByOwn(step-1, 1); err != nil {
		return nil, 0, err
	}
	loss, _, err = e.rounds.train(ctx, step, batch, 0, func(rate float32, length float64, gradients [][]float32) {
		e.replica.statistics.tell(step, rate, length, func() (_, _ [][]float32) { return gradients, e.residual.unsent.now })
	})
	if err != nil {
		return nil, 0, err
	}
	if err := begun(); err != nil {
		return nil, 0, err
	}
	defer e.timings.ended(step, partEncode, time.Now())
	if !audited {
		if err := e.moveByOwn(step-1, -1); err != nil {
			return nil, 0, err
		}
	}
	payload, err = e.residual.encode(header, e.replica.kept, e.replica.weights(), e.rounds.rates.lr(step))
	return payload, loss, err
}

// moveByOwn moves the weights by this trainer's own result of a step, times factor, if that result
// still waits to be applied with the others, as with an apply_lag of 2. A factor of -1 moves them
// back. Without this move, a round would start from almost the same weights as the previous round
// and repeat its steps. Runs with audits do not make this move, because auditors would need the
// waiting result as well.
func (e *localExchange) moveByOwn(step uint32, factor float32) error {
	if _, waits := e.residual.sent[step]; !waits {
		return nil
	}
	e.replica.changed()
	return e.residual.addOwn(step, e.replica.weights(), factor)
}

// move changes the weights by results. Without results nothing changes.
func (e *localExchange) move(_ context.Context, step uint32, results [][]codec.TensorResult) error {
	e.replica.changed()
	lr := e.rounds.rates.lr(step)
	for i, w := range e.replica.weights() {
		if err := e.residual.apply(i, results, w, lr); err != nil {
			return fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return nil
}

func (e *localExchange) finalize(step uint32, counted bool) error {
	return e.residual.finalize(step, counted)
}

func (e *localExchange) reset() error {
	e.rounds.inner.reset()
	e.residual.reset()
	return nil
}

func (e *localExchange) state(lend bool) (OptimizerState, error) {
	r, inner := e.residual, e.rounds.inner
	defer r.history.lock()()
	if len(r.sent) > 0 {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w: a trained step was not applied yet", errStep)
	}
	state := OptimizerState{Optimizer: "localsteps", Step: e.replica.step}
	inner.addTo(&state, lend)
	for i := range e.replica.parameters {
		one := e.replica.parameters[i : i+1]
		state.add(unsentName, one, r.unsent.now[i:i+1], lend)
		if r.momenta != nil {
			state.add(outerMomentumName, one, r.momenta[i:i+1], lend)
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
	if r.momenta != nil {
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
	copyAll(r.unsent.now, sums)
	copyAll(r.momenta, momenta)
	r.fed, r.sent = 0, map[uint32]sentSums{}
	return nil
}
