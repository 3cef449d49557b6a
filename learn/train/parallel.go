package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// Parallelism is the number of engines that compute a gradient, each with its own threads.
type Parallelism struct {
	Data   int // number of engines among which the micro-batches of a batch are divided; 0 means 1
	Tensor int // number of engines that compute each layer of one micro-batch together; 0 means 1
}

func (p Parallelism) engines() int { return max(p.Data, 1) * max(p.Tensor, 1) }

// check refuses invalid values.
func (p Parallelism) check() error {
	if p.Data < 0 || p.Tensor < 0 || p.engines() > maxEngines || max(p.Data, p.Tensor) > maxEngines {
		return fmt.Errorf("%w: data parallelism %d, tensor parallelism %d, want at least 1 each and %d together at most",
			errUnsupported, p.Data, p.Tensor, maxEngines)
	}
	return nil
}

const maxEngines = 256

// worker accumulates gradients of micro-batches, separately from other workers.
type worker interface {
	// refresh gives the worker the current weights.
	refresh(ctx context.Context) error
	// add computes the loss of a micro-batch, and accumulates share times its gradient.
	add(ctx context.Context, part microBatch, share float64) (loss float64, err error)
	// addTo adds the accumulated gradients to sums, in the order of the parameters, and clears
	// them. The first worker treats sums as zero, whatever they contain.
	addTo(ctx context.Context, sums [][]float32, first bool) error
	// drop clears the accumulated gradients.
	drop(ctx context.Context) error
}

// parallel computes gradients on several engines. Those of the CPU share the replica's own weights,
// so all see every change; other devices have copies (see apart). The assignment of micro-batches
// to workers and the order in which gradients are added depend only on the batch, not on the
// workers' speed.
type parallel struct {
	workers []worker
	engines []*torch.Engine
	sums    []*torch.Tensor // of the gradients, on the replica's engine
	slices  [][]float32     // their memory
}

// newParallel starts the engines. They share threads.
func newParallel(ctx context.Context, r *replica, o Options) (*parallel, error) {
	p, threads := o.Parallel, o.Threads
	if info, err := torch.Loaded(); err == nil && threads <= 0 {
		threads = info.Threads
	}
	all := &parallel{}
	fail := func(err error) (*parallel, error) {
		return nil, errors.Join(err, all.close())
	}
	own, tensors := max(1, threads/max(p.engines(), len(o.Devices))), max(p.Tensor, 1)
	for _, device := range o.Devices {
		if err := all.addApart(ctx, r, device, own, o.Compute); err != nil {
			return fail(fmt.Errorf("model on %s: %w", device, err))
		}
	}
	for range max(p.Data, 1) {
		if len(o.Devices) > 0 {
			break
		}
		var group []*torch.Engine
		for range tensors {
			engine, err := torch.NewEngineThreads(torch.CPU, own)
			if err != nil {
				return fail(fmt.Errorf("parallelism: %w", err))
			}
			group, all.engines = append(group, engine), append(all.engines, engine)
		}
		w, err := newWorker(ctx, r.model, group)
		if err != nil {
			return fail(fmt.Errorf("parallelism: %w", err))
		}
		all.workers = append(all.workers, w)
	}
	err := r.engine.Do(ctx, false, func(s *torch.Scope) error {
		for _, parameter := range r.parameters {
			sum := s.Keep(s.Zeros(torch.F32, parameter.shape...))
			all.sums, all.slices = append(all.sums, sum), append(all.slices, sum.Float32s())
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return all, nil
}

func newWorker(ctx context.Context, m model.Model, engines []*torch.Engine) (worker, error) {
	if len(engines) > 1 {
		split, err := model.Split(ctx, engines, m)
		if err != nil {
			return nil, err
		}
		return several{split}, nil
	}
	twin, err := model.Twin(ctx, engines[0], m)
	if err != nil {
		return nil, err
	}
	return single{twin}, nil
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
func (p *parallel) gradient(ctx context.Context, r *replica, parts []microBatch, tokens int64, use func(s *torch.Scope, loss float64, gradients []*torch.Tensor) error) error {
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
	return r.engine.Do(ctx, false, func(s *torch.Scope) error { return use(s, total, p.sums) })
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

// single is a worker with one engine.
type single struct{ twin model.Model }

func (w single) add(ctx context.Context, part microBatch, share float64) (loss float64, err error) {
	err = w.twin.Engine().Do(ctx, true, func(s *torch.Scope) error {
		loss = part.gradient(s, w.twin, share)
		return nil
	})
	return loss, err
}

func (w single) refresh(context.Context) error { return nil }

func (w single) addTo(ctx context.Context, sums [][]float32, first bool) error {
	if first {
		clearAll(sums)
	}
	return w.twin.Engine().Do(ctx, false, func(*torch.Scope) error {
		for i, p := range w.twin.Parameters() {
			grad := p.Tensor.Grad()
			if grad == nil {
				continue
			}
			addSlice(sums[i], grad.Contiguous().Float32s())
			p.Tensor.ClearGrad()
		}
		return nil
	})
}

func (w single) drop(ctx context.Context) error {
	return w.twin.Engine().Do(ctx, false, func(*torch.Scope) error {
		for _, p := range w.twin.Parameters() {
			p.Tensor.ClearGrad()
		}
		return nil
	})
}

// splitModel is a model in which several engines compute a part each.
type splitModel interface {
	Gradient(ctx context.Context, ids, targets []int32, batch, tokens int64, share float64) (float64, error)
	AddTo(ctx context.Context, sums [][]float32) error
	Drop(ctx context.Context) error
}

// several is a worker with the engines of a split model.
type several struct{ split splitModel }

func (w several) add(ctx context.Context, part microBatch, share float64) (float64, error) {
	return w.split.Gradient(ctx, part.inputs, part.targets, part.rows, part.columns, share)
}

func (w several) refresh(context.Context) error { return nil }

func (w several) addTo(ctx context.Context, sums [][]float32, first bool) error {
	if first {
		clearAll(sums)
	}
	return w.split.AddTo(ctx, sums)
}

func addSlice(sum, values []float32) {
	for i, v := range values {
		sum[i] += v
	}
}

func clearAll(slices [][]float32) {
	for _, slice := range slices {
		clear(slice)
	}
}

func (w several) drop(ctx context.Context) error { return w.split.Drop(ctx) }

// parallelise makes the replica compute gradients on several engines from now on, or on other
// devices, if the options require it.
func (r *replica) parallelise(ctx context.Context, o Options) error {
	if err := o.Parallel.check(); err != nil {
		return err
	}
	if err := checkDevices(o.Devices, o.Parallel); err != nil {
		return err
	}
	if o.Parallel.engines() == 1 && len(o.Devices) == 0 {
		return nil
	}
	var err error
	r.parallel, err = newParallel(ctx, r, o)
	return err
}

// rows returns how many sequences of a batch go through the model at once: fewer than configured if
// workers would be idle otherwise.
func (r *replica) rows(batch data.Batch) int64 {
	if r.parallel == nil {
		return int64(r.microBatch)
	}
	n := len(r.parallel.workers)
	return int64(max(1, min(r.microBatch, (len(batch.Sequences)+n-1)/n)))
}
