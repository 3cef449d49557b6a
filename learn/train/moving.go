package train

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/torch"
)

// moveThere changes the weights of all devices by there, which a device's engine runs on its thread. If
// it compares, or a device fails while the CPU has the weights too, here changes the weights on the CPU
// as well, and the failure is nil only if all devices have the same bits then. In this case the caller
// must make the optimizer leave the devices.
func (r *replica) moveThere(ctx context.Context, compares bool, there func(a *apart) error, here func(weights [][]float32) error) (failure, err error) {
	ctx = context.WithoutCancel(ctx)
	devices := r.parallel.apart()
	if err := r.parallel.refresh(ctx, devices...); err != nil {
		return nil, err
	}
	if compares {
		if err := r.parallel.bring(ctx); err != nil {
			return nil, err
		}
	}
	kept := r.fresh == r.changes
	var group errgroup.Group
	for _, a := range devices {
		group.Go(func() error {
			return a.twin.Engine().Do(ctx, false, func(*torch.Scope) error {
				defer a.conversions.Changed()
				return there(a)
			})
		})
	}
	failure = group.Wait()
	switch {
	case errors.Is(failure, distro.ErrInput): // nothing has changed
		return nil, failure
	case failure == nil:
		r.parallel.moved(devices...)
	default:
		r.changes++ // some weights have moved
	}
	if failure == nil && !compares {
		return nil, nil
	}
	if !kept {
		return nil, fmt.Errorf("%w: %w", errLost, failure)
	}
	r.fresh = r.changes
	if err := here(r.weights()); err != nil {
		return nil, err
	}
	for _, a := range devices {
		if failure == nil {
			failure = a.compare(ctx)
		}
	}
	return failure, nil
}
