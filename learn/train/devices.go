package train

import (
	"context"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
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
// Code that makes the same change to the weights here and on the device, such as an applier, sets
// seen, which saves the refresh.
type apart struct {
	single
	from    *store
	seen    uint64  // from.changes at the time when the copy was equal
	applier applier // nil: every change needs a refresh
	moves   uint64  // number of steps in which the applier moved the copy by coefficients
}

// newApart starts an engine of the device with a number of threads, and copies the model to it. The
// caller must close the engine, which is nil if it could not be started.
func newApart(ctx context.Context, from *store, device torch.Device, threads int, o Options) (*apart, *torch.Engine, error) {
	engine, err := torch.NewEngineThreads(device, threads)
	if err != nil {
		return nil, nil, err
	}
	if err := checkType(ctx, o.Logger, engine, o.Compute.Compute); err != nil {
		return nil, engine, err
	}
	there, err := model.Copy(ctx, engine, from.model, o.Compute)
	if err != nil {
		return nil, engine, err
	}
	return &apart{single: single{there}, from: from, seen: from.changes}, engine, nil
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

// move applies results to the copy. libtorch and the applier use the legacy default stream, so the
// device runs their work in order. The applier waits for the end of its work before it returns. The
// engine does no other work meanwhile.
func (a *apart) move(ctx context.Context, o *optimizer, results [][]codec.TensorResult, lr float32) error {
	parameters := a.twin.Parameters()
	return a.twin.Engine().Do(ctx, false, func(*torch.Scope) error {
		return o.move(results, lr, func(i int, ofTensor []codec.TensorResult, p distro.ApplyParams) error {
			weights := parameters[i].Tensor
			there := cuda.Tensor{Address: cuda.DevicePointer(weights.Address()), Elements: int(weights.Numel())}
			return a.applier.DecodeApply(o.layouts[i], ofTensor, there, p)
		})
	})
}

// A check reads as many bytes back as a refresh writes. The first steps detect a device that always
// computes other bits. A device that starts to do so later is detected within checkEvery steps. The
// checks cost less than half a percent of a refresh in each step, and the applier saves that refresh.
const (
	firstChecks = 3
	checkEvery  = 256
)

// check is called after each step that moved the copy by coefficients. After the first firstChecks
// of these steps, and after every checkEvery-th, it compares the copy with the weights. Otherwise a
// device that computes other bits would move its copy away unnoticed.
func (a *apart) check(ctx context.Context) error {
	if a.moves++; a.moves > firstChecks && a.moves%checkEvery != 0 {
		return nil
	}
	return a.twin.Engine().Do(ctx, false, func(s *torch.Scope) error {
		for i, p := range a.twin.Parameters() {
			err := s.Sub(func(*torch.Scope) error { // frees the tensors that were read back
				for j, v := range p.Tensor.ToDevice(torch.CPU).Float32s() {
					if want := a.from.parameters[i].weights[j]; math.Float32bits(v) != math.Float32bits(want) {
						return fmt.Errorf("weight %d of %s became %v on the device, and %v on the CPU", j, p.Name, v, want)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *apart) closeMover() error {
	if a.applier == nil {
		return nil
	}
	err := a.applier.Close()
	a.applier = nil
	return err
}
