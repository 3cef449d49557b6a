package train

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// otherwise is the model in a type other than the replica's training type, for auditing honest
// trainers of that type.
type otherwise struct {
	requested bool
	err       error // why it is not available
	twin      model.Model
	on        *apart // whose weights the twin uses; nil: the store's
}

// gradient computes the gradient of a batch in a type: on the device with the state of the optimizer, or on
// the CPU. The caller must hold the replica's lock.
func (o *otherwise) gradient(ctx context.Context, r *replica, compute torch.DType, batch data.Batch) ([][]float32, error) {
	if err := o.prepare(ctx, r, compute); err != nil {
		return nil, err
	}
	if o.on != nil {
		if err := r.parallel.refresh(ctx, o.on); err != nil {
			return nil, err
		}
		return r.gradientOf(ctx, &apart{single: single{o.twin}}, batch)
	}
	if err := r.parallel.bring(ctx); err != nil {
		return nil, err
	}
	return r.gradientOf(ctx, single{o.twin}, batch)
}

// prepare makes the model that computes in a type, with the same weights, on the first call.
func (o *otherwise) prepare(ctx context.Context, r *replica, compute torch.DType) error {
	if !o.requested {
		engine, of := r.engine, r.model
		if o.on = r.parallel.home(); o.on != nil {
			engine, of = o.on.twin.Engine(), o.on.twin
		}
		if o.err = checkType(ctx, r.log, engine, compute); o.err == nil {
			o.twin, o.err = model.TwinIn(ctx, engine, of, compute)
		}
		if o.err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		o.requested = true
	}
	if o.err != nil {
		return fmt.Errorf("%w: to compute in %s: %w", errUnsupported, compute, o.err)
	}
	return nil
}
