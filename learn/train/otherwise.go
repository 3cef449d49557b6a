package train

import (
	"context"
	"fmt"

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

// worker returns a worker that computes in a type with the newest weights: on the device with the state of
// the optimizer, or on the CPU. The caller must hold the replica's lock.
func (o *otherwise) worker(ctx context.Context, r *replica, compute torch.DType) (worker, error) {
	if err := o.prepare(ctx, r, compute); err != nil {
		return nil, err
	}
	if o.on != nil {
		return &apart{single: single{o.twin}}, r.parallel.refresh(ctx, o.on)
	}
	return single{o.twin}, r.parallel.bring(ctx)
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
