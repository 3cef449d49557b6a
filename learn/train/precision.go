package train

import (
	"context"
	"errors"
	"fmt"
	"math"

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

// precisionOf returns a type's name in package audit.
func precisionOf(t torch.DType) audit.Precision {
	if t == torch.BF16 {
		return audit.BF16
	}
	return audit.F32
}

func typeOf(p audit.Precision) torch.DType {
	if p == audit.BF16 {
		return torch.BF16
	}
	return torch.F32
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
		o.err = t.checkType(ctx, t.engine, compute)
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

// gradientOf is gradient for one worker, which shares the memory of the weights.
func (r *replica) gradientOf(ctx context.Context, w single, batch data.Batch) ([][]float32, error) {
	parts, tokens, err := r.cut(batch)
	if err != nil {
		return nil, err
	}
	total := 0.0
	for _, part := range parts {
		if err = ctx.Err(); err != nil {
			break
		}
		var loss float64
		share := float64(part.counted) / float64(tokens)
		if loss, err = w.add(ctx, part, share); err != nil {
			break
		}
		total += loss * share
	}
	if err == nil && (math.IsNaN(total) || math.IsInf(total, 0)) {
		err = fmt.Errorf("%w: loss is %v", errNotFinite, total)
	}
	if err != nil {
		_ = w.drop(context.WithoutCancel(ctx))
		return nil, err
	}
	gradients := make([][]float32, len(r.parameters))
	for i, p := range r.parameters {
		gradients[i] = make([]float32, len(p.weights))
	}
	if err := w.addTo(ctx, gradients, true); err != nil { // otherwise the rest would be part of the next gradient
		return nil, errors.Join(err, w.drop(context.WithoutCancel(ctx)))
	}
	return gradients, nil
}
