package train

import (
	"context"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/train/schedule"
)

// Trainer trains its share of a run's rounds and applies the counted results. Its methods are safe
// for concurrent use. Train, Apply, Evaluate, Snapshot and Load wait for each other; Verify does
// not wait.
type Trainer struct {
	*replica
	*auditor
	rates      *rates
	reader     *reader
	exchange   exchange
	limits     limits
	timings    timings
	speculates bool // whether training moves no weights and does not use their kept copy
	applied    bool // whether replica.step was finished by Apply
}

// exchange is a method of training and exchanging results: DisTrO or local steps. Its methods are called
// under the lock of the replica.
type exchange interface {
	// encode trains on a batch and returns the bytes of the result, which has the given header, and
	// the mean loss. Between the gradient and the change of the optimizer's state it calls begun.
	// If it fails, the weights are unchanged, and the state is unchanged or, if a device failed without audits,
	// zeros.
	encode(ctx context.Context, header codec.Header, batch data.Batch, begun func() error) (payload []byte, loss float64, err error)
	// move changes the weights by the results of a step and their votes.
	move(ctx context.Context, step uint32, results [][]codec.TensorResult, votes distro.Votes) error
	// finalize ends the wait for this trainer's result of a step.
	finalize(step uint32, counted bool) error
	// reset resets the optimizer's state.
	reset() error
	// state returns the optimizer's state: a copy, or its own memory if lend is true. If a result
	// waits to be finalized, the error wraps errStep.
	state(lend bool) (OptimizerState, error)
	// setState continues from a state that was saved together with this model.
	setState(state OptimizerState) error
}

// limits are constants of a trainer.
type limits struct {
	lag       uint32
	maxResult int // bytes
	valueBits int
}

// Train trains on the batch, and returns the bytes of the result for that step with the batch's
// mean loss in nats per token. With DisTrO it computes a gradient and adds it to the momentum. With
// local steps it makes the steps of a round on the parts of the batch, and then restores the
// weights. If it fails or ctx is cancelled, weights, momentum and residual are unchanged, but the
// running means of local steps may include gradients of the steps made so far. If a device fails
// without audits, momentum, residual and running means may become zeros. Train checks ctx before each
// micro-batch.
//
// A step may be trained before it is known whether its round starts. Between the gradient and the
// momentum, Train calls begun. If begun returns an error, Train fails. A nil begun means that the
// round has started. Changes made by Speculate must be confirmed before begun returns.
//
// A step is trained at most once; its result waits for Apply of the same step.
func (t *Trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error) {
	payload, loss, err = t.train(ctx, step, batch, begun)
	if err != nil {
		return nil, 0, fmt.Errorf("train step %d, batch %s: %w", step, batch.ID, err)
	}
	return payload, loss, nil
}

func (t *Trainer) train(ctx context.Context, step uint32, batch data.Batch, begun func(ctx context.Context) error) (payload []byte, loss float64, err error) {
	if want := batch.ID.Len(); uint64(len(batch.Sequences)) != want {
		return nil, 0, fmt.Errorf("%w: %d sequences, the batch has %d", errTokens, len(batch.Sequences), want)
	}
	t.progress.reset()
	if err := t.lockKeeping(ctx, func(of *speculation) bool { return of.step < step }); err != nil {
		return nil, 0, err
	}
	defer t.unlock()
	if t.keeper.relieve() {
		t.giveBack()
	}
	header := codec.Header{RunHash: t.reader.run, Step: step, BatchStart: batch.ID.Start, BatchEnd: batch.ID.End, Trainer: t.key}
	if t.history != nil {
		header.Precision, header.Batch = t.precisions[0].Code(), batch.Hash()
	}
	return t.exchange.encode(ctx, header, batch, func() error {
		if begun != nil {
			if err := begun(ctx); err != nil {
				return err
			}
		}
		return t.speculated.fulfilled()
	})
}

// Progress returns the parts of the running training's batch whose computation is complete, and has
// begun: 0 to 1.
func (t *Trainer) Progress() (complete, begun float64) { return t.progress.parts() }

// Step runs a round of a run with a single member: Train, and Apply of its own result. If it fails
// or ctx is cancelled, nothing has changed.
func (t *Trainer) Step(ctx context.Context, step uint32, batch data.Batch) (loss float64, err error) {
	payload, loss, err := t.Train(ctx, step, batch, nil)
	if err != nil {
		return 0, err
	}
	if err := t.Verify(payload, step, batch.ID, t.key); err != nil {
		return 0, err
	}
	// A trained step is applied. A cancellation must not come in between.
	return loss, t.Apply(context.WithoutCancel(ctx), step, [][]byte{payload}, nil, true)
}

// Verify returns an error unless payload is, byte for byte, a possible result of the trainer for
// that step and batch. Errors wrap ErrResult. It needs no engine. It keeps the decoded result for
// Apply, in bounded memory.
func (t *Trainer) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	return t.reader.verify(payload, step, batch, trainer)
}

// Apply changes the weights by the counted results of a step, in ascending order of their batches, and by
// their votes, from 1 to assign.FullVote. Nil votes give each result a full vote.
// Without results, the weights still decay under DisTrO, and do not change under local steps.
// ownCounted reports whether this trainer's result is among them. If not, this trainer's result is
// added back to the momentum, except in runs with audits, see Trainer.SetAttested.
//
// Steps are applied in ascending order, each once. If a payload is invalid or out of order, Apply
// returns an error that wraps ErrResult, and nothing has changed.
func (t *Trainer) Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error {
	if err := t.apply(ctx, step, payloads, votes, ownCounted); err != nil {
		return fmt.Errorf("apply step %d: %w", step, err)
	}
	return nil
}

func (t *Trainer) apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error {
	if t.speculated.matches(step, payloads, votes, ownCounted) {
		if err := t.lock(ctx); err != nil {
			return err
		}
		t.unlock()
		return nil
	}
	begun := time.Now()
	results, err := t.reader.readAll(step, payloads)
	if err != nil {
		return err
	}
	t.timings.ended(step, partDecode, begun)
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	if err := t.checkNext(step); err != nil {
		return err
	}
	if err := t.exchange.move(ctx, step, results, votes); err != nil {
		return err
	}
	return t.finalize(step, ownCounted)
}

// checkNext refuses a step that is not after the newest applied one.
func (t *Trainer) checkNext(step uint32) error {
	if t.applied && step <= t.step {
		return fmt.Errorf("%w: step %d was applied before", errStep, t.step)
	}
	return nil
}

// finalize does the work after the weights were moved by the results of a step.
func (t *Trainer) finalize(step uint32, ownCounted bool) error {
	t.step, t.applied = step, true
	t.reader.decoded.forget(step)
	return t.exchange.finalize(step, ownCounted)
}

// Close refuses openings, waits for the running call and frees the model. Waiting and later calls return
// ErrClosed; a second Close does nothing.
func (t *Trainer) Close() error {
	t.history.close()
	return t.replica.Close()
}

// Load replaces the model by another snapshot of it and resets the optimizer. For a snapshot of
// another model it returns an error that wraps errModel, and nothing has changed.
func (t *Trainer) Load(ctx context.Context, s checkpoint.Snapshot) error {
	if err := t.lock(ctx); err != nil {
		return fmt.Errorf("load model: %w", err)
	}
	defer t.unlock()
	if err := t.load(ctx, s); err != nil {
		return fmt.Errorf("load model: %w", err)
	}
	t.applied = false
	t.reader.decoded.forgetAll()
	t.keeper.drop(func(*recomputing) bool { return true }) // other weights may belong to its step now
	if err := t.exchange.reset(); err != nil {
		return fmt.Errorf("load model: %w", err)
	}
	return nil
}

// ResetOptimizer resets the optimizer, as a cold start requires.
func (t *Trainer) ResetOptimizer(ctx context.Context) error {
	if err := t.lock(ctx); err != nil {
		return fmt.Errorf("reset optimizer: %w", err)
	}
	defer t.unlock()
	if err := t.exchange.reset(); err != nil {
		return fmt.Errorf("reset optimizer: %w", err)
	}
	return nil
}

// LR returns the learning rate of a step.
func (t *Trainer) LR(ctx context.Context, step uint32) (float32, error) {
	if err := t.lock(ctx); err != nil {
		return 0, err
	}
	defer t.unlock()
	return t.rates.lr(step), nil
}

// SetColdStart scales the learning rate from 0 at step start to its full value steps later. With 0
// steps it ends the scaling. All members of a run must use the same values.
func (t *Trainer) SetColdStart(ctx context.Context, start, steps uint32) error {
	if err := t.lock(ctx); err != nil {
		return fmt.Errorf("set cold start: %w", err)
	}
	defer t.unlock()
	t.rates.cold.Store(&schedule.ColdStart{Start: start, Steps: steps})
	return nil
}

// ApplyLag returns the number of rounds after which results are applied: the results of step s
// before step s + ApplyLag is trained.
func (t *Trainer) ApplyLag() uint32 { return t.limits.lag }

// MaxResultSize returns the maximum size in bytes of a result of this model.
func (t *Trainer) MaxResultSize() int { return t.limits.maxResult }

// ValueBits returns the number of bits of a value that local steps send; 0 for DisTrO.
func (t *Trainer) ValueBits() int { return t.limits.valueBits }
