package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
)

// shards divides the tensors of a model among devices. The owner of a tensor has the optimizer's state of it. Local steps
// move a tensor on its owner, and the other devices copy it from there before they next use it.
type shards struct {
	devices []*apart
	owners  []int   // of each tensor
	tensors [][]int // of each device, in ascending order
	seen    uint64  // store.changes at the time when each tensor was the newest on its owner
	// kept is a copy of the weights, each on its owner, see keep; nil before the first call.
	kept []*torch.Tensor
}

// divide gives each tensor to a device, so that the devices have about the same number of elements: the largest tensor
// first, each to the device that has the fewest elements.
func divide(devices []*apart, elements []int) *shards {
	order := make([]int, len(elements))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(elements[b], elements[a]) })
	owners, loads := make([]int, len(elements)), make([]int, len(devices))
	for _, i := range order {
		least := slices.Index(loads, slices.Min(loads))
		owners[i] = least
		loads[least] += elements[i]
	}
	return newShards(devices, owners)
}

func newShards(devices []*apart, owners []int) *shards {
	o := &shards{devices: devices, owners: owners, tensors: make([][]int, len(devices))}
	for i, d := range owners {
		o.tensors[d] = append(o.tensors[d], i)
	}
	return o
}

// owner returns the device of a tensor.
func (o *shards) owner(tensor int) *apart { return o.devices[o.owners[tensor]] }

// of returns the tensors of a device.
func (o *shards) of(a *apart) []int { return o.tensors[slices.Index(o.devices, a)] }

// home returns the first device, on whose engine steps run.
func (o *shards) home() *apart { return o.devices[0] }

// do calls f for each owner with its tensors, on the thread of the device's engine, for all owners at the same time.
// inside is the scope of the caller if the caller is on the thread of the first device's engine, otherwise nil.
func (o *shards) do(ctx context.Context, inside *torch.Scope, f func(s *torch.Scope, a *apart, tensors []int) error) error {
	return o.together(func(d int) error {
		on := func(s *torch.Scope) error { return f(s, o.devices[d], o.tensors[d]) }
		if d == 0 && inside != nil {
			return on(inside)
		}
		return o.devices[d].twin.Engine().Do(ctx, false, on)
	})
}

// launch is do for an f that only launches kernels, which needs no thread of an engine.
func (o *shards) launch(f func(a *apart, tensors []int) error) error {
	return o.together(func(d int) error { return f(o.devices[d], o.tensors[d]) })
}

// together calls f for all owners at the same time, and for the first on the caller's goroutine. It panics after all calls
// if a call panics.
func (o *shards) together(f func(d int) error) error {
	var owners []int
	for d, tensors := range o.tensors {
		if len(tensors) > 0 {
			owners = append(owners, d)
		}
	}
	failures, panics := make([]error, len(owners)), make([]any, len(owners))
	call := func(n int) {
		defer func() { panics[n] = recover() }()
		failures[n] = f(owners[n])
	}
	var group sync.WaitGroup
	for n := range owners[1:] {
		group.Go(func() { call(n + 1) })
	}
	call(0)
	group.Wait()
	for _, value := range panics {
		if value != nil {
			panic(value)
		}
	}
	return ofAll(failures)
}

// all calls f for all devices at the same time.
func (o *shards) all(f func(d int, a *apart) error) error {
	var group errgroup.Group
	for d, a := range o.devices {
		group.Go(func() error { return f(d, a) })
	}
	return group.Wait()
}

// errPartly means that a call failed on some devices after other devices have changed their tensors.
var errPartly = errors.New("some devices have done their part")

// ofAll returns the error of a call on all devices, given the error of each. If a device failed, it leaves out the errors
// of devices that refused the call.
func ofAll(failures []error) error {
	failed := slices.DeleteFunc(slices.Clone(failures), func(err error) bool { return err == nil || refused(err) })
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	err := errors.Join(failures...)
	if err != nil && slices.Contains(failures, nil) {
		err = fmt.Errorf("%w: %w", err, errPartly)
	}
	return err
}

// refused reports whether an error means that no operation on a device failed: it was not allowed, or lacked memory.
func refused(err error) bool {
	return errors.Is(err, distro.ErrInput) || errors.Is(err, distro.ErrNotFinite) || errors.Is(err, errTorn) || LacksMemory(err)
}

// allocate returns a tensor of zeros for each parameter, on its owner.
func (o *shards) allocate(ctx context.Context) ([]*torch.Tensor, error) {
	all := make([]*torch.Tensor, len(o.owners))
	err := o.do(ctx, nil, func(s *torch.Scope, a *apart, tensors []int) error {
		for _, i := range tensors {
			all[i] = s.Keep(s.Zeros(torch.F32, a.from.parameters[i].shape...))
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, o.free(all))
	}
	return all, nil
}

// free frees tensors, each on its owner. It ignores nil.
func (o *shards) free(all []*torch.Tensor) error {
	if all == nil {
		return nil
	}
	return o.do(context.Background(), nil, func(_ *torch.Scope, _ *apart, tensors []int) error {
		for _, t := range pick(all, tensors) {
			if t != nil {
				t.Free()
			}
		}
		return nil
	})
}

// weights returns the weights, each on its owner.
func (o *shards) weights() []*torch.Tensor {
	all := make([]*torch.Tensor, len(o.owners))
	for d, a := range o.devices {
		there := a.weights()
		for _, i := range o.tensors[d] {
			all[i] = there[i]
		}
	}
	return all
}

// copyTo copies to a device the tensors that it does not own, from their owners.
func (o *shards) copyTo(ctx context.Context, to *apart) error {
	from := o.weights()
	return to.twin.Engine().Do(ctx, false, func(s *torch.Scope) error {
		for i, w := range to.weights() {
			if o.owner(i) == to {
				continue
			}
			err := s.Sub(func(*torch.Scope) error {
				w.Detach().CopyFrom(from[i])
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// keep copies the weights, each on its owner, and returns a function that restores them there.
func (o *shards) keep(ctx context.Context) (back func() error, err error) {
	move := func(f func(weights, kept *torch.Tensor)) error {
		return o.do(context.WithoutCancel(ctx), nil, func(_ *torch.Scope, a *apart, tensors []int) error {
			weights := detached(pick(a.weights(), tensors))
			for n, i := range tensors {
				f(weights[n], o.kept[i])
			}
			return nil
		})
	}
	if o.kept == nil {
		if o.kept, err = o.allocate(ctx); err != nil {
			return nil, err
		}
	}
	return func() error { return move(func(weights, kept *torch.Tensor) { weights.CopyFrom(kept) }) },
		move(func(weights, kept *torch.Tensor) { kept.CopyFrom(weights) })
}

// norm returns the L2 norm of all tensors together, with the bits of one device.
func (o *shards) norm(all []*torch.Tensor) (float64, error) {
	squares := make([][]float64, len(all))
	err := o.launch(func(a *apart, tensors []int) error {
		own, err := a.share.Squares(addresses(pick(all, tensors)))
		if err == nil {
			spread(squares, tensors, own)
		}
		return err
	})
	return cuda.Norm(squares), err
}

// pick returns the elements with the given numbers.
func pick[T any](all []T, numbers []int) []T {
	picked := make([]T, len(numbers))
	for n, i := range numbers {
		picked[n] = all[i]
	}
	return picked
}

// pickEach is pick for each of several lists.
func pickEach[T any](lists [][]T, numbers []int) [][]T {
	picked := make([][]T, len(lists))
	for i, list := range lists {
		picked[i] = pick(list, numbers)
	}
	return picked
}

// spread is the inverse of pick: it writes values to the elements with the given numbers.
func spread[T any](all []T, numbers []int, values []T) {
	for n, i := range numbers {
		all[i] = values[n]
	}
}

// reduce returns the sums of the gradients that the devices have accumulated, each on its owner, added in the order of the
// devices. The devices forget their gradients. The caller must free the sums.
func (o *shards) reduce(ctx context.Context) (sums []*torch.Tensor, err error) {
	gradients := make([][]*torch.Tensor, len(o.devices)) // of each device; nil: none for a tensor
	err = o.all(func(d int, a *apart) (err error) {
		gradients[d], err = a.takeGradients(ctx)
		return err
	})
	sums = make([]*torch.Tensor, len(o.owners))
	if err == nil {
		err = o.do(ctx, nil, func(s *torch.Scope, a *apart, tensors []int) error {
			for _, i := range tensors {
				if err := s.Sub(func(s *torch.Scope) error { return o.add(s, gradients, i) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i, d := range o.owners {
		if gradients[d] != nil {
			sums[i], gradients[d][i] = gradients[d][i], nil
		}
	}
	err = errors.Join(err, o.all(func(d int, a *apart) error { return a.free(gradients[d]) }))
	if err != nil {
		return nil, errors.Join(err, o.free(sums))
	}
	return sums, nil
}

// add adds the gradients of a tensor, in the order of the devices, into the gradient of its owner, on the thread of the
// owner's engine.
func (o *shards) add(s *torch.Scope, gradients [][]*torch.Tensor, tensor int) error {
	d := o.owners[tensor]
	own := gradients[d][tensor]
	sum := own
	if d > 0 || own == nil { // later additions need the owner's gradient
		sum = s.Zeros(torch.F32, o.devices[d].from.parameters[tensor].shape...)
		if first := gradients[0][tensor]; first != nil {
			sum.CopyFrom(first)
		}
	}
	for _, of := range gradients[1:] {
		if more := of[tensor]; more == own && own != nil {
			sum.AddInPlace(more, 1)
		} else if more != nil {
			err := s.Sub(func(s *torch.Scope) error {
				sum.AddInPlace(s.Copy(more), 1)
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	if own == nil {
		gradients[d][tensor] = s.Keep(sum)
	} else if own != sum {
		own.CopyFrom(sum)
	}
	return nil
}

// openKernels opens kernels on each device: for all tensors, and then for the tensors of the owner. If a device has no
// kernels, or opening them fails, it returns that device. The caller must then close the opened kernels.
func (o *shards) openKernels(open func(a *apart, layouts []distro.Layout) (kernels, error), layouts []distro.Layout) (without *apart, err error) {
	for _, a := range o.devices {
		if a.kernels, err = open(a, layouts); err != nil || a.kernels == nil {
			return a, err
		}
	}
	for d, a := range o.devices {
		if len(o.tensors[d]) == len(layouts) {
			a.share = a.kernels
		} else if len(o.tensors[d]) > 0 {
			if a.share, err = open(a, pick(layouts, o.tensors[d])); err != nil {
				return a, err
			}
		}
	}
	return nil, nil
}

// chunk returns a copy of a chunk of a tensor.
func (o *shards) chunk(all []*torch.Tensor, tensor, within int) ([]float32, error) {
	a := o.owner(tensor)
	return a.share.Chunk(addresses(all[tensor : tensor+1])[0], slices.Index(o.of(a), tensor), within)
}

// addBack adds coefficients to tensors.
func (o *shards) addBack(all []*torch.Tensor, results []codec.TensorResult) error {
	return o.launch(func(a *apart, tensors []int) error {
		return a.share.AddBack(addresses(pick(all, tensors)), pick(results, tensors))
	})
}

// far replaces weights by the kept ones minus the weights.
func (o *shards) far(weights []*torch.Tensor) error {
	defer o.converted()
	return o.launch(func(a *apart, tensors []int) error {
		return a.share.Far(addresses(pick(o.kept, tensors)), addresses(pick(weights, tensors)), nil, 0)
	})
}

// converted makes each device convert its weights again, see apart.conversions.
func (o *shards) converted() {
	for _, a := range o.devices {
		a.conversions.Changed()
	}
}
