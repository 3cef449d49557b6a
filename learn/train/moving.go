package train

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

// moveThere changes the weights of all devices by there, which a device's engine runs on its thread. If
// it compares, or a device fails while the CPU has the weights too, here changes the weights on the CPU
// as well, and the failure is nil only if all devices have the same bits then. If a device fails while the
// CPU has older weights, the CPU gets the new ones from another device. Devices that have failed get the new weights
// before their next use. The caller must settle the failure.
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
	moved, failure := r.moveAll(ctx, devices, there)
	if errors.Is(failure, distro.ErrInput) && len(moved) == 0 { // nothing has changed
		return nil, failure
	}
	if errors.Is(failure, cuda.ErrMemory) && len(moved) == 0 { // a device may have the old weights
		if err := r.parallel.bring(ctx); err != nil {
			failure = errors.Join(failure, err)
		}
	}
	kept := r.fresh == r.changes
	r.parallel.moved(moved...)
	if failure == nil && !compares {
		return nil, nil
	}
	if !kept {
		if err := r.parallel.bring(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", err, failure)
		}
		return failure, nil
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

// moveAll calls there for each device on the thread of its engine, and returns the devices that did
// not fail. Devices that failed no longer have the weights, except after cuda.ErrMemory.
func (r *replica) moveAll(ctx context.Context, devices []*apart, there func(a *apart) error) (moved []*apart, failure error) {
	failures := make([]error, len(devices))
	var group sync.WaitGroup
	for i, a := range devices {
		group.Go(func() {
			failures[i] = a.twin.Engine().Do(ctx, false, func(*torch.Scope) error {
				defer a.conversions.Changed()
				return there(a)
			})
		})
	}
	group.Wait()
	for i, a := range devices {
		switch {
		case failures[i] == nil:
			moved = append(moved, a)
		case !errors.Is(failures[i], cuda.ErrMemory) && !errors.Is(failures[i], distro.ErrInput):
			a.seen = r.changes - 1
			r.parallel.shards.seen = a.seen
		}
	}
	return moved, errors.Join(failures...)
}
