package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

// applier applies results to weights in device memory, with the same bits as the optimizer's kernel
// produces in CPU memory: a cuda.Device. Calls return when the device is done.
type applier interface {
	DecodeApply(l distro.Layout, results []codec.TensorResult, weights cuda.Tensor, p distro.ApplyParams) error
	Close() error
}

// openApplier opens the applier of a device. It returns nil for a copy on the CPU.
func openApplier(device torch.Device) (applier, error) {
	if device == torch.CPU {
		return nil, nil
	}
	there, err := cuda.Open(int(device))
	if err != nil {
		return nil, err
	}
	return there, nil
}

// openAppliers opens appliers for the copies on other devices. If one fails, it opens none of the
// rest, which would most likely fail too. Those copies are refreshed instead.
func (r *replica) openAppliers(open func(torch.Device) (applier, error)) {
	for _, a := range r.apart() {
		device := a.twin.Engine().Device()
		m, err := open(device)
		if err != nil {
			r.log.Warn("the optimizer's kernels cannot run on the device: weights will be copied there for every step",
				"device", device.String(), "because", err,
				"remedy", "install NVRTC of the CUDA version that libtorch is made for, or set "+cuda.EnvNVRTC+
					" to its library; the driver must be as new as NVRTC")
			return
		}
		if a.applier = m; m != nil {
			r.log.Info("results are applied on the device too", "device", device.String())
		}
	}
}

// apart returns the workers on other devices.
func (r *replica) apart() []*apart {
	if r.parallel == nil {
		return nil
	}
	return r.parallel.apart()
}

func (p *parallel) apart() (all []*apart) {
	for _, w := range p.workers {
		if a, ok := w.(*apart); ok {
			all = append(all, a)
		}
	}
	return all
}

// moveWeights applies results to the weights and, concurrently, to the copies on devices with an
// applier. These copies then have the same bits and need no refresh, which is checked now and then.
// A copy that differed before, for example because of lookahead, waits for its refresh; so does one
// whose applier failed.
func (t *Trainer) moveWeights(ctx context.Context, results [][]codec.TensorResult, lr float32) error {
	var copies []*apart
	for _, a := range t.apart() {
		if a.applier != nil && a.seen == t.changes {
			copies = append(copies, a)
		}
	}
	t.changed() // all copies need a refresh, until they are known to be equal
	var group sync.WaitGroup
	failures := make([]error, len(copies))
	for i, a := range copies {
		group.Go(func() { failures[i] = a.move(context.WithoutCancel(ctx), t.optimizer, results, lr) })
	}
	err := t.optimizer.apply(t.weights(), results, lr)
	group.Wait()
	if err != nil {
		return err
	}
	telling := lr > 0 && !empty(results)
	for i, a := range copies {
		failure := failures[i]
		if failure == nil && telling {
			failure = a.check(context.WithoutCancel(ctx))
		}
		if failure == nil {
			a.seen = t.changes
			continue
		}
		t.log.Warn("the optimizer's kernels failed on the device: weights will be copied there for every step from now on",
			"device", a.twin.Engine().Device().String(), "because", errors.Join(failure, a.closeMover()))
	}
	return nil
}

// move applies results to the copy. libtorch's work on the device and the applier's are ordered,
// because both use the legacy default stream, and the applier waits for the end of its own work
// before it returns. The engine does no other work meanwhile.
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

// empty reports whether results have no coefficients, as the first ones of a cold start. Applying
// such results shows little about the applier's arithmetic.
func empty(results [][]codec.TensorResult) bool {
	for _, result := range results {
		for _, tensor := range result {
			if slices.ContainsFunc(tensor.Counts, func(n uint16) bool { return n > 0 }) {
				return false
			}
		}
	}
	return true
}

// A check reads as many bytes back as a refresh writes. The first steps detect a device that always
// computes other bits. A device that starts to do so later is detected within checkEvery steps, at
// less than half a percent of the cost of a refresh for each step, which the applier saves.
const (
	firstChecks = 3
	checkEvery  = 256
)

// check is called after each step that moved the copy by coefficients. It compares the copy with
// the weights after the first of these, and after every checkEvery-th. Otherwise a device that
// computes other bits would move its copy away unnoticed.
func (a *apart) check(ctx context.Context) error {
	if a.moves++; a.moves > firstChecks && a.moves%checkEvery != 0 {
		return nil
	}
	return a.twin.Engine().Do(ctx, false, func(s *torch.Scope) error {
		for i, p := range a.twin.Parameters() {
			err := s.Sub(func(*torch.Scope) error { // frees the tensors that were read back
				for j, v := range p.Tensor.ToDevice(torch.CPU).Float32s() {
					if want := a.from.parameters[i].weights[j]; math.Float32bits(v) != math.Float32bits(want) {
						return fmt.Errorf("weight %d of %s became %v there, and %v here", j, p.Name, v, want)
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
