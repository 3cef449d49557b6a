package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/train/schedule"
)

// Trainer trains its share of a run's rounds with DisTrO and applies the counted results. Its
// methods are safe for concurrent use. Train, Apply, Evaluate, Snapshot and Load wait for each
// other; Verify does not wait.
type Trainer struct {
	*member
	optimizer *optimizer
	computes  torch.DType // type in which Train computes
	other     otherwise
}

// New builds the model in memory and checks that everything fits. It loads libtorch;
// without it the error wraps torch.ErrNoLibrary.
func New(ctx context.Context, o Options) (*Trainer, error) {
	if o.Optimizer.Distro == nil {
		return nil, fmt.Errorf("trainer: %w: a run's optimizer must be Distro", errUnsupported)
	}
	rates, err := schedule.New(o.LRSchedule)
	if err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	r, err := newTraining(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("trainer: %w", err)
	}
	threads := o.Threads
	if info, err := torch.Loaded(); err == nil && threads <= 0 {
		threads = info.Threads
	}
	optimizer, err := newOptimizer(*o.Optimizer.Distro, r.shapes(), threads)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trainer: %w", err), r.Close())
	}
	if o.Audited {
		if err := optimizer.commit(); err != nil {
			return nil, errors.Join(fmt.Errorf("trainer: %w", err), r.Close())
		}
	}
	// Lookahead moves the weights before each step and back after it, so copies must be refreshed
	// anyway.
	if !optimizer.config.Lookahead {
		open := o.applier
		if open == nil {
			open = openApplier
		}
		r.parallel.openAppliers(r.log, open)
	}
	t := &Trainer{optimizer: optimizer, computes: o.Compute.Compute}
	t.member = newMember(r, rates, o, shapesOf(optimizer.layouts, int(optimizer.config.CompressionTopK)), optimizer.history, optimizer.decode, t)
	return t, nil
}

// newTraining is newReplica for a model that is trained.
func newTraining(ctx context.Context, o Options) (*replica, error) {
	if o.Compute.Compute == torch.F16 {
		return nil, fmt.Errorf("%w: to train in f16, in which small gradients become zero; use bf16, which has the range of f32", errUnsupported)
	}
	return newReplica(ctx, o)
}

// Train computes the gradient of the batch, adds it to the momentum, and returns the bytes of the
// result for that step with the batch's mean loss in nats per token. It does not change the
// weights. If it fails or ctx is cancelled, the momentum has not changed either. Train checks ctx
// before each micro-batch.
//
// A step may be trained before it is known whether its round starts. Between the gradient and the
// momentum, Train calls begun. If begun returns an error, Train fails. A nil begun means that the
// round has started. A Foresee that moved the weights must be confirmed before begun returns.
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
	if err := t.lockKeeping(ctx, func(of *foreseen) bool { return of.step < step }); err != nil {
		return nil, 0, err
	}
	defer t.unlock()
	header := codec.Header{RunHash: t.run, Step: step, BatchStart: batch.ID.Start, BatchEnd: batch.ID.End, Trainer: t.trainer}
	if t.optimizer.history != nil {
		header.Precision, header.Batch = precisionOf(t.computes).Code(), batch.Hash()
	}
	if t.optimizer.config.Lookahead {
		defer t.lookAhead(t.lr(max(step, 1) - 1))()
	}
	err = t.gradient(ctx, batch, func(_ *torch.Scope, mean float64, tensors []*torch.Tensor) error {
		gradients := float32s(tensors)
		loss = mean
		if begun != nil {
			if err := begun(ctx); err != nil {
				return err
			}
		}
		if err := t.foresight.fulfilled(); err != nil {
			return err
		}
		defer t.timed(step, partEncode, time.Now())
		var err error
		length := norm(gradients)
		if payload, err = t.optimizer.encode(header, gradients, length, t.lr(step)); err == nil {
			t.statistics.tell(step, t.lr(step), length, gradients, t.optimizer.deltas)
		}
		return err
	})
	return payload, loss, err
}

// lookAhead moves the model to the weights that result from applying the momentum not yet sent, and
// returns a function that restores the model from a copy of its bits, because arithmetic cannot
// undo the rounding of a step.
func (t *Trainer) lookAhead(lr float32) (back func()) {
	back = t.keep()
	for i, w := range t.weights() {
		ahead(w, t.optimizer.deltas[i], lr)
	}
	t.changed()
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

// move changes the weights by results.
func (t *Trainer) move(ctx context.Context, step uint32, results [][]codec.TensorResult) error {
	return t.moveWeights(ctx, results, t.lr(step))
}

func (t *Trainer) settleOwn(step uint32, counted bool) error {
	return t.optimizer.settle(step, counted)
}

func (t *Trainer) forget() { t.optimizer.reset() }

func (t *Trainer) foresees() bool { return !t.optimizer.config.Lookahead }

// decodeAll decodes the results of a step in the form in which they are applied: bounded.
func (t *Trainer) decodeAll(step uint32, payloads [][]byte) ([][]codec.TensorResult, error) {
	results, err := t.member.decodeAll(step, payloads)
	for i := range results {
		results[i] = t.optimizer.bounded(results[i])
	}
	return results, err
}

// Step runs a round of a run with a single member: Train, and Apply of its own result. If it fails
// or ctx is cancelled, nothing has changed.
func (t *Trainer) Step(ctx context.Context, step uint32, batch data.Batch) (loss float64, err error) {
	payload, loss, err := t.Train(ctx, step, batch, nil)
	if err != nil {
		return 0, err
	}
	if err := t.Verify(payload, step, batch.ID, t.trainer); err != nil {
		return 0, err
	}
	// A trained step is applied. A cancellation must not come in between.
	return loss, t.Apply(context.WithoutCancel(ctx), step, [][]byte{payload}, true)
}

// ApplyLag returns the number of rounds after which results are applied: the results of step s
// before step s + ApplyLag is trained.
func (t *Trainer) ApplyLag() uint32 { return t.optimizer.config.Lag() }

// MaxResultSize returns the maximum size in bytes of a result of this model.
func (t *Trainer) MaxResultSize() int {
	return codec.MaxSize(t.optimizer.results, t.optimizer.config.Quantize1Bit)
}
