package train

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// parallel computes gradients on several engines. Engines on the CPU share the weights of the store,
// so every change is visible to all of them. Other devices have copies (see apart). The assignment
// of micro-batches to workers and the order in which gradients are added depend only on the batch,
// not on the workers' speed.
type parallel struct {
	from    *store
	workers []worker
	engines []*torch.Engine
	sums    []*torch.Tensor // of the gradients, on the store's engine
	slices  [][]float32     // their memory
	// resident is true if the newest weights are on the devices: steps move them there.
	resident bool
	shards   *shards // of the devices that move the weights, or have moved them; nil: none
}

// newParallel starts the engines that the options require. They share threads. It returns nil if one
// engine computes everything.
func newParallel(ctx context.Context, from *store, o Options) (*parallel, error) {
	if err := o.Parallel.check(); err != nil {
		return nil, err
	}
	if err := checkDevices(o.Devices, o.Parallel); err != nil {
		return nil, err
	}
	if o.Parallel.engines() == 1 && len(o.Devices) == 0 {
		return nil, nil
	}
	p, threads := o.Parallel, o.Threads
	if info, err := torch.Loaded(); err == nil && threads <= 0 {
		threads = info.Threads
	}
	all, own := &parallel{from: from}, max(1, threads/max(p.engines(), len(o.Devices)))
	err := all.addDevices(ctx, own, o)
	if err == nil && len(o.Devices) == 0 {
		err = all.addProcessors(ctx, own, p)
	}
	if err != nil {
		return nil, errors.Join(err, all.close())
	}
	return all, nil
}

// addDevices starts an engine with a copy of the model for each device.
func (p *parallel) addDevices(ctx context.Context, threads int, o Options) error {
	for _, device := range o.Devices {
		w, engine, err := newApart(ctx, p.from, device, threads, o)
		if engine != nil {
			p.engines = append(p.engines, engine)
		}
		if err != nil {
			return fmt.Errorf("model on %s: %w", device, err)
		}
		p.workers = append(p.workers, w)
	}
	return nil
}

// addProcessors starts groups of engines on the CPU, which share the weights.
func (p *parallel) addProcessors(ctx context.Context, threads int, of Parallelism) error {
	for range max(of.Data, 1) {
		var group []*torch.Engine
		for range max(of.Tensor, 1) {
			engine, err := torch.NewEngineThreads(torch.CPU, threads)
			if err != nil {
				return fmt.Errorf("parallelism: %w", err)
			}
			group, p.engines = append(group, engine), append(p.engines, engine)
		}
		w, err := newWorker(ctx, p.from.model, group)
		if err != nil {
			return fmt.Errorf("parallelism: %w", err)
		}
		p.workers = append(p.workers, w)
	}
	return nil
}

// makeSums allocates the memory of sums at the first call.
func (p *parallel) makeSums(ctx context.Context) error {
	if p.sums != nil {
		return nil
	}
	return p.from.engine.Do(ctx, false, func(s *torch.Scope) error {
		for _, parameter := range p.from.parameters {
			sum := s.Keep(s.Zeros(torch.F32, parameter.shape...))
			p.sums, p.slices = append(p.sums, sum), append(p.slices, sum.Float32s())
		}
		return nil
	})
}

// close closes the kernels and the engines, with everything on them.
func (p *parallel) close() error {
	var errs []error
	for _, a := range p.apart() {
		errs = append(errs, a.close())
	}
	for _, engine := range p.engines {
		errs = append(errs, engine.Close())
	}
	return errors.Join(errs...)
}

// gradient is replica.gradient on all engines: worker i modulo their number computes micro-batch i.
func (p *parallel) gradient(ctx context.Context, at place, parts []microBatch, tokens int64, progress *progress, use func(s *torch.Scope, loss float64, gradients []*torch.Tensor) error) error {
	if err := p.refresh(ctx, p.apart()...); err != nil {
		return err
	}
	sum, total := newAccumulation(len(p.workers), len(parts)), 0.0
	err := sum.add(ctx, p.workers, parts, tokens, false, progress)
	if err == nil {
		total, err = sum.loss()
	}
	if err != nil {
		return errors.Join(err, drop(ctx, p.workers))
	}
	if at.on != nil {
		err = p.useThere(ctx, at.on, func(s *torch.Scope, gradients []*torch.Tensor) error { return use(s, total, gradients) })
	} else if err = p.makeSums(ctx); err != nil {
		return errors.Join(err, drop(ctx, p.workers))
	} else if err = reduce(ctx, p.workers, p.slices); err == nil {
		return p.from.engine.Do(ctx, false, func(s *torch.Scope) error { return use(s, total, p.sums) })
	}
	if err != nil {
		return errors.Join(err, drop(ctx, p.workers))
	}
	return nil
}

// useThere adds the gradients of all devices, each tensor's on its owner, and passes them to use on the
// thread of the first device's engine.
func (p *parallel) useThere(ctx context.Context, on *shards, use func(s *torch.Scope, gradients []*torch.Tensor) error) error {
	gradients, err := on.reduce(ctx)
	if err == nil {
		err = on.home().twin.Engine().Do(ctx, false, func(s *torch.Scope) error { return use(s, gradients) })
	}
	return errors.Join(err, on.free(gradients))
}

// stay makes steps move the weights on devices.
func (p *parallel) stay(on *shards) { p.resident, p.shards = true, on }

// resides returns the devices on which steps move the weights; nil: the CPU moves them.
func (p *parallel) resides() *shards {
	if p == nil || !p.resident {
		return nil
	}
	return p.shards
}

// home returns the first of the devices on which steps move the weights; nil: the CPU moves them.
func (p *parallel) home() *apart {
	if p.resides() == nil {
		return nil
	}
	return p.shards.home()
}

// refresh gives devices the newest weights.
func (p *parallel) refresh(ctx context.Context, devices ...*apart) error {
	from := p.newest()
	group, inner := errgroup.WithContext(ctx)
	for _, a := range devices {
		if a.seen == p.from.changes {
			continue
		}
		group.Go(func() error {
			var err error
			switch {
			case from != nil:
				err = model.Refresh(inner, a.twin, from)
			case p.onOwners():
				err = p.shards.copyTo(inner, a)
			default:
				return errLost
			}
			if err != nil {
				return fmt.Errorf("copy weights to %s: %w", a.twin.Engine().Device(), err)
			}
			a.seen = p.from.changes
			return nil
		})
	}
	return group.Wait()
}

// onOwners reports whether the newest weights are on several owners.
func (p *parallel) onOwners() bool {
	return p.shards != nil && len(p.shards.devices) > 1 && p.shards.seen == p.from.changes
}

// newest returns a model with the newest weights: the store's, or else a device's. It returns nil if they are on
// several owners, or if a device failed while it changed the only ones.
func (p *parallel) newest() model.Model {
	if p.from.fresh == p.from.changes {
		return p.from.model
	}
	for _, a := range p.apart() {
		if a.seen == p.from.changes {
			return a.twin
		}
	}
	return nil
}

// bring makes the store's weights fresh, from the first device that has the newest weights and does not
// fail. A nil parallel has no devices that could have newer ones.
func (p *parallel) bring(ctx context.Context) error {
	if p == nil || p.from.fresh == p.from.changes {
		return nil
	}
	if p.newest() == nil && p.onOwners() {
		if err := p.refresh(ctx, p.shards.home()); err != nil {
			return err
		}
	}
	err := errLost
	for _, a := range p.apart() {
		if a.seen != p.from.changes {
			continue
		}
		if err = model.Refresh(ctx, p.from.model, a.twin); err == nil {
			p.from.fresh = p.from.changes
			return nil
		}
		err = fmt.Errorf("copy weights from %s: %w", a.twin.Engine().Device(), err)
	}
	return err
}

// moved must be called after the weights were changed in the same way on devices.
func (p *parallel) moved(devices ...*apart) {
	p.from.changes++
	for _, a := range devices {
		a.seen = p.from.changes
	}
}

// leave closes the kernels of all devices. From now on, the CPU changes the weights, which the store
// must have.
func (p *parallel) leave() error {
	p.resident = false
	p.from.changed()
	return p.closeKernels()
}

// closeKernels closes the kernels of all devices.
func (p *parallel) closeKernels() error {
	var errs []error
	for _, a := range p.apart() {
		errs = append(errs, a.closeKernels())
	}
	return errors.Join(errs...)
}

// apart returns the workers on other devices. A nil parallel has none.
func (p *parallel) apart() (all []*apart) {
	if p == nil {
		return nil
	}
	for _, w := range p.workers {
		if a, ok := w.(*apart); ok {
			all = append(all, a)
		}
	}
	return all
}

// evaluates returns the model that computes losses: the first copy, or else the store's own.
func (p *parallel) evaluates(ctx context.Context) (model.Model, error) {
	first, ok := p.workers[0].(*apart)
	if !ok {
		return p.from.model, nil
	}
	return first.twin, p.refresh(ctx, first)
}
