package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sync/errgroup"
)

// accumulation is the gradient of the micro-batches of a batch that workers have added so far. Worker i
// modulo their number adds micro-batch i, so the gradient does not depend on the workers' speed.
type accumulation struct {
	done   []int         // number of micro-batches that each worker has added
	losses []float64     // of each micro-batch, times its share
	taken  [][][]float32 // the gradients of each worker; nil: the workers have them
}

func newAccumulation(workers, parts int) *accumulation {
	return &accumulation{done: make([]int, workers), losses: make([]float64, parts)}
}

// add adds the remaining micro-batches. A cancelled ctx ends it before the next micro-batches. If whole is
// false, ctx may also end it within a micro-batch, and the gradient is undefined then.
func (a *accumulation) add(ctx context.Context, workers []worker, parts []microBatch, tokens int64, whole bool, progress *progress) error {
	group, inner := errgroup.WithContext(ctx)
	within := inner
	if whole {
		within = context.WithoutCancel(ctx)
	}
	for i, w := range workers {
		group.Go(func() error {
			for at := i + a.done[i]*len(workers); at < len(parts); at += len(workers) {
				if err := errors.Join(ctx.Err(), inner.Err()); err != nil {
					return err
				}
				share := float64(parts[at].counted) / float64(tokens)
				done := progress.begin(share)
				loss, err := w.add(within, parts[at], share)
				if err != nil {
					return err
				}
				a.losses[at] = loss * share
				a.done[i]++
				done()
			}
			return nil
		})
	}
	err := group.Wait()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return err
}

// loss returns the mean loss of the batch.
func (a *accumulation) loss() (total float64, err error) {
	for _, loss := range a.losses {
		total += loss
	}
	if math.IsNaN(total) || math.IsInf(total, 0) {
		return 0, fmt.Errorf("%w: loss is %v", errNotFinite, total)
	}
	return total, nil
}

// pause takes the gradients from the workers.
func (a *accumulation) pause(ctx context.Context, workers []worker) error {
	a.taken = make([][][]float32, len(workers))
	for i, w := range workers {
		var err error
		if a.taken[i], err = w.take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// resume returns the gradients to the workers.
func (a *accumulation) resume(ctx context.Context, workers []worker) error {
	for i, gradients := range a.taken {
		if err := workers[i].put(ctx, gradients); err != nil {
			return err
		}
	}
	a.taken = nil
	return nil
}

// reduce adds the gradients of workers to sums, the first worker's first. The sums begin as zeros.
func reduce(ctx context.Context, workers []worker, sums [][]float32) error {
	for i, w := range workers {
		if err := w.addTo(ctx, sums, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// drop clears the gradients of workers.
func drop(ctx context.Context, workers []worker) error {
	var errs []error
	for _, w := range workers {
		errs = append(errs, w.drop(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}
