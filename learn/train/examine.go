package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
)

// distroExaminer audits results of DisTrO. It implements examiner.
type distroExaminer struct {
	replica   *replica
	rates     *rates
	optimizer *optimizer
	earlier   *lookback
	keeper    *keeper
	computes  torch.DType // type in which the replica computes
	other     otherwise
}

// values returns the coefficients themselves.
func (d *distroExaminer) values(_ uint32, results []codec.TensorResult) ([]codec.TensorResult, error) {
	return results, nil
}

func (d *distroExaminer) rollBack(step uint32) error { return d.optimizer.rollBack(step) }

func (d *distroExaminer) reference(step uint32, _ [32]byte) *audit.Reference {
	c := d.optimizer.config
	return &audit.Reference{
		Decay: float32(c.CompressionDecay), Signs: c.Quantize1Bit,
		Longest: d.longest(step), Most: float64(d.rates.lr(step)) * c.ClipGradNorm,
	}
}

// recompute computes the gradient of a step. If it is interrupted, r keeps the gradient so far.
func (d *distroExaminer) recompute(ctx context.Context, r *recomputing, batch data.Batch) (err error) {
	if d.optimizer.config.Lookahead {
		return fmt.Errorf("%w: lookahead", errUnsupported)
	}
	back, err := d.earlier.restore(ctx, r.x)
	defer func() { err = errors.Join(err, back()) }()
	if err != nil {
		return err
	}
	workers, err := d.workers(ctx, r.x.Precision)
	if err != nil {
		return err
	}
	gradients, err := d.gradient(ctx, r, workers, batch)
	if err != nil {
		return err
	}
	r.reference.Limits = r.x.Precision.Limits()
	return d.fill(r.reference, gradients)
}

// workers returns the workers that compute gradients with the newest weights: in the training type as Train
// does, else by a model that computes in the other type.
func (d *distroExaminer) workers(ctx context.Context, p audit.Precision) ([]worker, error) {
	of := d.replica
	if p != precisionOf(d.computes) {
		w, err := d.other.worker(ctx, of, typeOf(p))
		return []worker{w}, err
	}
	if of.parallel == nil {
		return []worker{single{of.model}}, nil
	}
	return of.parallel.workers, of.parallel.refresh(ctx, of.parallel.apart()...)
}

// gradient computes the rest of the gradient of a batch.
func (d *distroExaminer) gradient(ctx context.Context, r *recomputing, workers []worker, batch data.Batch) ([][]float32, error) {
	parts, tokens, err := d.replica.cut(batch)
	if err != nil {
		return nil, err
	}
	sum, continues := r.state.(*accumulation)
	if !continues {
		sum = newAccumulation(len(workers), len(parts))
	}
	r.state, r.bytes = nil, 0
	whole := context.WithoutCancel(ctx) // an interruption would leave only some of the gradients
	if err = sum.resume(whole, workers); err == nil {
		d.replica.giveBack()
		err = sum.add(ctx, workers, parts, tokens, true, &d.replica.progress)
	}
	if err == nil {
		_, err = sum.loss()
	}
	var gradients [][]float32
	if err == nil {
		gradients = zeros(d.optimizer.layouts)
		err = reduce(whole, workers, gradients)
	}
	if err == nil {
		return gradients, nil
	}
	if bytes := uint64(len(workers)) * 4 * uint64(d.replica.Elements()); interrupted(ctx, err) && d.keeper.hasRoom(bytes) {
		if failed := sum.pause(whole, workers); failed == nil {
			r.state, r.bytes = sum, bytes
		}
	}
	return nil, errors.Join(err, drop(ctx, workers))
}

// fill copies the chunks from the gradients.
func (d *distroExaminer) fill(reference *audit.Reference, gradients [][]float32) error {
	whole := norm(gradients)
	if math.IsNaN(whole) || math.IsInf(whole, 0) {
		return fmt.Errorf("%w: gradient norm is %v", errNotFinite, whole)
	}
	scale := float64(d.rates.lr(reference.Step)) * clipScale(whole, d.optimizer.config.ClipGradNorm)
	fill(reference, d.optimizer.layouts, gradients, float32(scale))
	return nil
}

// longest returns the maximum length of a momentum after a step.
func (d *distroExaminer) longest(step uint32) float64 {
	c := d.optimizer.config
	const negligible = 1e-9
	sum, factor := 0.0, 1.0
	for s := step; s >= 1 && factor > negligible; s-- {
		sum += factor * float64(d.rates.lr(s)) * c.ClipGradNorm
		factor *= c.CompressionDecay
	}
	return sum
}
