package train

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/learn/distro/cuda"
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
	if err == nil {
		err = all.makeSums(ctx)
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

func (p *parallel) makeSums(ctx context.Context) error {
	return p.from.engine.Do(ctx, false, func(s *torch.Scope) error {
		for _, parameter := range p.from.parameters {
			sum := s.Keep(s.Zeros(torch.F32, parameter.shape...))
			p.sums, p.slices = append(p.sums, sum), append(p.slices, sum.Float32s())
		}
		return nil
	})
}

// close closes the appliers and the engines, with everything on them.
func (p *parallel) close() error {
	var errs []error
	for _, a := range p.apart() {
		errs = append(errs, a.closeMover())
	}
	for _, engine := range p.engines {
		errs = append(errs, engine.Close())
	}
	return errors.Join(errs...)
}

// gradient is replica.gradient on all engines: worker i modulo their number computes micro-batch i.
func (p *parallel) gradient(ctx context.Context, parts []microBatch, tokens int64, use func(s *torch.Scope, loss float64, gradients []*torch.Tensor) error) error {
	losses := make([]float64, len(parts))
	group, inner := errgroup.WithContext(ctx)
	for i, w := range p.workers {
		group.Go(func() error {
			if err := w.refresh(inner); err != nil {
				return err
			}
			for at := i; at < len(parts); at += len(p.workers) {
				if err := inner.Err(); err != nil {
					return err
				}
				share := float64(parts[at].counted) / float64(tokens)
				loss, err := w.add(inner, parts[at], share)
				if err != nil {
					return err
				}
				losses[at] = loss * share
			}
			return nil
		})
	}
	err := group.Wait()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return errors.Join(err, p.drop(context.WithoutCancel(ctx)))
	}
	total := 0.0
	for _, loss := range losses {
		total += loss
	}
	if math.IsNaN(total) || math.IsInf(total, 0) {
		return errors.Join(fmt.Errorf("%w: loss is %v", errNotFinite, total), p.drop(context.WithoutCancel(ctx)))
	}
	if err := p.reduce(ctx); err != nil {
		return errors.Join(err, p.drop(context.WithoutCancel(ctx)))
	}
	return p.from.engine.Do(ctx, false, func(s *torch.Scope) error { return use(s, total, p.sums) })
}

// reduce adds the gradients of all workers, the first worker's first.
func (p *parallel) reduce(ctx context.Context) error {
	for i, w := range p.workers {
		if err := w.addTo(ctx, p.slices, i == 0); err != nil {
			return err
		}
	}
	return nil
}

func (p *parallel) drop(ctx context.Context) error {
	var errs []error
	for _, w := range p.workers {
		errs = append(errs, w.drop(ctx))
	}
	return errors.Join(errs...)
}

// openAppliers opens appliers for the copies on other devices. If one fails, it opens none of the
// rest, which would most likely fail too. Those copies are refreshed instead.
func (p *parallel) openAppliers(log *slog.Logger, open func(torch.Device) (applier, error)) {
	for _, a := range p.apart() {
		device := a.twin.Engine().Device()
		m, err := open(device)
		if err != nil {
			log.Warn("the optimizer's kernels cannot run on the device: weights will be copied there for every step",
				"device", device.String(), "because", err,
				"remedy", "install NVRTC of the CUDA version that libtorch is made for, or set "+cuda.EnvNVRTC+
					" to its library; the driver must be as new as NVRTC")
			return
		}
		if a.applier = m; m != nil {
			log.Info("results are applied on the device too", "device", device.String())
		}
	}
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
	return first.twin, first.refresh(ctx)
}
