package train

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// checkDevices refuses unsupported combinations of devices.
func checkDevices(devices []torch.Device, p Parallelism) error {
	n := len(devices)
	switch {
	case n == 0:
		return nil
	case p.Tensor > 1:
		return fmt.Errorf("%w: tensor parallelism %d on %s: layers are divided among groups of CPU threads only; use data parallelism",
			errUnsupported, p.Tensor, devices[0])
	case n > maxEngines || p.Data > 1 && p.Data != n:
		return fmt.Errorf("%w: data parallelism %d on %d devices; the numbers must be equal, at most %d", errUnsupported, p.Data, n, maxEngines)
	}
	return nil
}

// apart is a worker on another device, with a copy of the model there. Gradients accumulate on the
// device. The copy follows the replica's weights, which stay on the CPU, where all members decode
// results to the same bits. Before use, the copy is refreshed if the weights have changed since.
// Code that changes the weights here and on the device alike, such as an applier, sets seen, which
// saves the refresh.
type apart struct {
	single
	from    *replica
	seen    uint64  // from.changes at the time when the copy was equal
	applier applier // nil: every change needs a refresh
	moves   uint64  // number of steps in which the applier moved the copy by coefficients
}

// addApart starts an engine of the device with a number of threads, and copies the model to it.
func (p *parallel) addApart(ctx context.Context, r *replica, device torch.Device, threads int, o model.Options) error {
	engine, err := torch.NewEngineThreads(device, threads)
	if err != nil {
		return err
	}
	p.engines = append(p.engines, engine)
	if err := r.checkType(ctx, engine, o.Compute); err != nil {
		return err
	}
	there, err := model.Copy(ctx, engine, r.model, o)
	if err != nil {
		return err
	}
	p.workers = append(p.workers, &apart{single: single{there}, from: r, seen: r.changes})
	return nil
}

func (a *apart) refresh(ctx context.Context) error {
	if a.seen == a.from.changes {
		return nil
	}
	if err := model.Refresh(ctx, a.twin, a.from.model); err != nil {
		return fmt.Errorf("copy weights to %s: %w", a.twin.Engine().Device(), err)
	}
	a.seen = a.from.changes
	return nil
}

// addTo reads the gradients back.
func (a *apart) addTo(ctx context.Context, sums [][]float32, first bool) error {
	if !first {
		return a.addMore(ctx, sums)
	}
	return a.twin.Engine().Do(ctx, false, func(*torch.Scope) error {
		for i, p := range a.twin.Parameters() {
			if grad := p.Tensor.Grad(); grad != nil {
				grad.ReadFloat32s(sums[i])
			} else {
				clear(sums[i])
			}
			p.Tensor.ClearGrad()
		}
		return nil
	})
}

func (a *apart) addMore(ctx context.Context, sums [][]float32) error {
	return a.twin.Engine().Do(ctx, false, func(s *torch.Scope) error {
		for i, p := range a.twin.Parameters() {
			err := s.Sub(func(*torch.Scope) error { // frees the tensors that were read back
				if grad := p.Tensor.Grad(); grad != nil {
					addSlice(sums[i], grad.ToDevice(torch.CPU).Contiguous().Float32s())
				}
				return nil
			})
			if err != nil {
				return err
			}
			p.Tensor.ClearGrad()
		}
		return nil
	})
}

// evaluates returns the model that computes losses: the replica's own, or the first copy.
func (p *parallel) evaluates(ctx context.Context, own model.Model) (model.Model, error) {
	first, ok := p.workers[0].(*apart)
	if !ok {
		return own, nil
	}
	return first.twin, first.refresh(ctx)
}
