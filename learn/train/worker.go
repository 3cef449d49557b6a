package train

import (
	"context"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// worker accumulates gradients of micro-batches, separately from other workers.
type worker interface {
	// add computes the loss of a micro-batch, and accumulates share times its gradient.
	add(ctx context.Context, part microBatch, share float64) (loss float64, err error)
	// addTo adds the accumulated gradients to sums, in the order of the parameters, and clears
	// them. The first worker treats sums as zero, whatever they contain.
	addTo(ctx context.Context, sums [][]float32, first bool) error
	// take returns the accumulated gradients in the memory of the CPU, for put, and clears them.
	take(ctx context.Context) ([][]float32, error)
	// put continues from gradients that take returned, bit for bit. None may be accumulated. It sets the
	// slices to nil.
	put(ctx context.Context, gradients [][]float32) error
	// drop clears the accumulated gradients.
	drop(ctx context.Context) error
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

// single is a worker with one engine.
type single struct{ twin model.Model }

func (w single) add(ctx context.Context, part microBatch, share float64) (loss float64, err error) {
	err = w.twin.Engine().Do(ctx, true, func(s *torch.Scope) error {
		loss = part.gradient(s, w.twin, share)
		return nil
	})
	return loss, err
}

func (w single) addTo(ctx context.Context, sums [][]float32, first bool) error {
	if first {
		clearAll(sums)
	}
	return w.twin.Engine().Do(ctx, false, func(s *torch.Scope) error {
		for i, p := range w.twin.Parameters() {
			_ = s.Sub(func(*torch.Scope) error { // frees the gradient
				if grad := p.Tensor.Grad(); grad != nil {
					addSlice(sums[i], grad.Contiguous().Float32s())
				}
				p.Tensor.ClearGrad()
				return nil
			})
		}
		return nil
	})
}

func (w single) take(ctx context.Context) (gradients [][]float32, err error) {
	err = w.twin.Engine().Do(ctx, false, func(*torch.Scope) error {
		for _, p := range w.twin.Parameters() {
			gradients = append(gradients, p.Tensor.TakeGrad())
		}
		return nil
	})
	return gradients, err
}

func (w single) put(ctx context.Context, gradients [][]float32) error {
	return w.twin.Engine().Do(ctx, true, func(*torch.Scope) error {
		for i, p := range w.twin.Parameters() {
			p.Tensor.PutGrad(gradients[i])
			gradients[i] = nil
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
	Take(ctx context.Context) ([][]float32, error)
	Put(ctx context.Context, gradients [][]float32) error
	Drop(ctx context.Context) error
}

// several is a worker with the engines of a split model.
type several struct{ split splitModel }

func (w several) add(ctx context.Context, part microBatch, share float64) (float64, error) {
	return w.split.Gradient(ctx, part.inputs, part.targets, part.rows, part.columns, share)
}

func (w several) addTo(ctx context.Context, sums [][]float32, first bool) error {
	if first {
		clearAll(sums)
	}
	return w.split.AddTo(ctx, sums)
}

func (w several) take(ctx context.Context) ([][]float32, error) { return w.split.Take(ctx) }

func (w several) put(ctx context.Context, gradients [][]float32) error {
	return w.split.Put(ctx, gradients)
}

func (w several) drop(ctx context.Context) error { return w.split.Drop(ctx) }
