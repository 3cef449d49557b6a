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
	computes  torch.DType // type in which the replica computes
	other     otherwise
}

// values returns the coefficients themselves.
func (d *distroExaminer) values(_ uint32, results []codec.TensorResult) ([]codec.TensorResult, error) {
	return results, nil
}

func (d *distroExaminer) rollBack(step uint32) error { return d.optimizer.rollBack(step) }

func (d *distroExaminer) drop() {}

func (d *distroExaminer) reference(step uint32, _ [32]byte) *audit.Reference {
	c := d.optimizer.config
	return &audit.Reference{
		Decay: float32(c.CompressionDecay), Signs: c.Quantize1Bit,
		Longest: d.longest(step), Most: float64(d.rates.lr(step)) * c.ClipGradNorm,
	}
}

// recompute computes the gradient of a step.
func (d *distroExaminer) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) (err error) {
	if d.optimizer.config.Lookahead {
		return fmt.Errorf("%w: lookahead", errUnsupported)
	}
	back, err := d.earlier.restore(ctx, x)
	defer func() { err = errors.Join(err, back()) }()
	if err != nil {
		return err
	}
	reference.Limits = x.Precision.Limits()
	return d.gradientIn(ctx, x.Precision, batch, func(gradients [][]float32) error { return d.fill(reference, gradients) })
}

// gradientIn computes the gradient of a batch: as Train does if p is the training type, else by a model
// that computes in the other type.
func (d *distroExaminer) gradientIn(ctx context.Context, p audit.Precision, batch data.Batch, use func(gradients [][]float32) error) error {
	if p == precisionOf(d.computes) {
		return d.replica.gradient(ctx, batch, func(_ *torch.Scope, _ float64, tensors []*torch.Tensor) error {
			return use(copied(tensors))
		})
	}
	gradients, err := d.other.gradient(ctx, d.replica, typeOf(p), batch)
	if err != nil {
		return err
	}
	return use(gradients)
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
