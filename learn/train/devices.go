package train

import (
	"context"
	"errors"
	"fmt"
	"math"

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
// device. Before use, the copy is refreshed from the store if the store's weights have changed since.
// With kernels, the device moves the copy itself by the results of a step, with the bits that all
// members compute. The store's weights are then older, until parallel.bring copies them back.
type apart struct {
	single
	from    *store
	seen    uint64  // from.changes at the time when the copy was equal
	gpu     *gpu    // nil: a copy on the CPU, or CUDA is not usable
	noGPU   error   // why gpu is nil; nil for a copy on the CPU
	kernels kernels // of all tensors; nil: every change needs a refresh
	share   kernels // of the tensors that the device owns, see shards; nil without kernels
	// conversions are the weights in the type of the computation. Code that changes weights through their
	// address must call Changed.
	conversions torch.Conversions
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
	a := &apart{single: single{there}, from: from, seen: from.changes}
	err = engine.Do(ctx, false, func(*torch.Scope) error {
		a.conversions = torch.KeepConversions(a.weights()...)
		return nil
	})
	if err == nil && device != torch.CPU { // last, because only close closes the GPU
		open := o.gpus
		if open == nil {
			open = cuda.Open
		}
		a.gpu, a.noGPU = openGPU(device, open, o.Logger)
	}
	return a, engine, err
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

// weights returns the tensors of the copy's parameters, in their order.
func (a *apart) weights() (tensors []*torch.Tensor) {
	for _, of := range a.twin.Parameters() {
		tensors = append(tensors, of.Tensor)
	}
	return tensors
}

// close frees what the engine does not free.
func (a *apart) close() error {
	err := a.closeKernels()
	if a.gpu != nil {
		err = errors.Join(err, a.gpu.close())
	}
	return errors.Join(err, a.twin.Engine().Do(context.Background(), false, func(*torch.Scope) error {
		a.conversions.Drop()
		return nil
	}))
}

// openKernels opens the kernels of the optimizer. The result is nil for a copy on the CPU.
func (a *apart) openKernels(layouts []distro.Layout, topK int) (kernels, error) {
	if a.gpu == nil {
		return nil, a.noGPU
	}
	m, err := a.gpu.device.NewModel(layouts, topK)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (a *apart) closeKernels() error {
	if a.kernels == nil {
		return nil
	}
	err := a.kernels.Close()
	if a.share != nil && a.share != a.kernels {
		err = errors.Join(err, a.share.Close())
	}
	a.kernels, a.share = nil, nil
	return err
}

// takeGradients returns the accumulated gradients, which the worker forgets: nil for a tensor without one. The
// caller must free them.
func (a *apart) takeGradients(ctx context.Context) (gradients []*torch.Tensor, err error) {
	err = a.twin.Engine().Do(ctx, false, func(s *torch.Scope) error {
		for _, p := range a.twin.Parameters() {
			g := p.Tensor.Grad()
			if g != nil {
				g = s.Keep(g.Contiguous())
			}
			gradients = append(gradients, g)
			p.Tensor.ClearGrad()
		}
		return nil
	})
	return gradients, err
}

// free frees tensors that the device's engine keeps. It ignores nil.
func (a *apart) free(tensors []*torch.Tensor) error {
	return a.twin.Engine().Do(context.Background(), false, func(*torch.Scope) error {
		for _, t := range tensors {
			if t != nil {
				t.Free()
			}
		}
		return nil
	})
}

// compare returns an error unless the copy has the bits of the store's weights.
func (a *apart) compare(ctx context.Context) error {
	return a.twin.Engine().Do(ctx, false, func(s *torch.Scope) error {
		for i, p := range a.twin.Parameters() {
			err := s.Sub(func(*torch.Scope) error { // frees the tensors that were read back
				for j, v := range p.Tensor.ToDevice(torch.CPU).Float32s() {
					if want := a.from.parameters[i].weights[j]; math.Float32bits(v) != math.Float32bits(want) {
						return fmt.Errorf("%w: weight %d of %s became %v on the device, and %v on the CPU", errBits, j, p.Name, v, want)
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
