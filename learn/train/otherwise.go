package train

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// otherwise is the model in a type other than the replica's training type, for auditing honest
// trainers of that type.
type otherwise struct {
	asked bool
	err   error // why it is not available
	twin  model.Model
}

// Precisions returns the types in which Recompute computes, the training type first. If the CPU
// cannot compute in the other type, Recompute returns an error.
func (t *Trainer) Precisions() []audit.Precision {
	if own := precisionOf(t.computes); own == audit.BF16 {
		return []audit.Precision{audit.BF16, audit.F32}
	}
	return []audit.Precision{audit.F32, audit.BF16}
}

// gradientIn computes the gradient of a batch in a type: in the training type as Train does, in
// another one on the CPU. The caller must hold the lock.
func (t *Trainer) gradientIn(ctx context.Context, p audit.Precision, batch data.Batch, use func(gradients [][]float32) error) error {
	if p == precisionOf(t.computes) {
		return t.gradient(ctx, batch, func(_ *torch.Scope, _ float64, tensors []*torch.Tensor) error {
			gradients := make([][]float32, len(tensors))
			for i, tensor := range tensors {
				gradients[i] = tensor.Float32s()
			}
			return use(gradients)
		})
	}
	twin, err := t.inType(ctx, typeOf(p))
	if err != nil {
		return err
	}
	gradients, err := t.gradientOf(ctx, single{twin}, batch)
	if err != nil {
		return err
	}
	return use(gradients)
}

// inType returns the model that computes in another type, with the same weights.
func (t *Trainer) inType(ctx context.Context, compute torch.DType) (model.Model, error) {
	if o := &t.other; !o.asked {
		o.err = checkType(ctx, t.log, t.engine, compute)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if o.asked = true; o.err == nil {
			o.twin, o.err = model.TwinIn(ctx, t.engine, t.model, compute)
		}
	}
	if t.other.err != nil {
		return nil, fmt.Errorf("%w: to compute in %s: %w", errUnsupported, compute, t.other.err)
	}
	return t.other.twin, nil
}
