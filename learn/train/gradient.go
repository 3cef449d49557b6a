package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
)

// warnOfPadding logs a warning at the first batch with the padding token, whose embedding
// transformers would not train. The caller must hold the lock.
func (r *replica) warnOfPadding(parts []microBatch) {
	if r.padding < 0 {
		return
	}
	for _, part := range parts {
		if slices.Contains(part.inputs, r.padding) {
			r.log.Warn("the data has the padding token; its embedding is trained here, but not by transformers", "pad_token_id", r.padding, "file", checkpoint.ConfigFile)
			r.padding = -1
			return
		}
	}
}

// gradient computes the mean loss over all counting targets and its gradient, and passes both to
// use, on the engine's thread and with gradients off. The gradients, in the order of the
// parameters, are valid during use. A cancelled ctx ends the work before the next micro-batch. use
// is called only if everything is done and finite.
func (r *replica) gradient(ctx context.Context, batch data.Batch, use func(s *torch.Scope, loss float64, gradients []*torch.Tensor) error) error {
	return r.gradientAt(ctx, place{r.store, r.parallel.resides()}, batch, use)
}

// gradientAt is gradient for a caller that needs the gradients at a place.
func (r *replica) gradientAt(ctx context.Context, at place, batch data.Batch, use func(s *torch.Scope, loss float64, gradients []*torch.Tensor) error) error {
	parts, tokens, err := r.cut(batch)
	if err != nil {
		return err
	}
	r.warnOfPadding(parts)
	if r.parallel != nil {
		return r.parallel.gradient(ctx, at, parts, tokens, &r.progress, use)
	}
	return r.engine.Do(ctx, true, func(s *torch.Scope) error {
		defer func() {
			for _, p := range r.parameters {
				p.tensor.ClearGrad()
			}
		}()
		total := 0.0
		for _, part := range parts {
			if err := ctx.Err(); err != nil {
				return err
			}
			share := float64(part.counted) / float64(tokens)
			done := r.progress.begin(share)
			err := s.Sub(func(s *torch.Scope) error {
				total += part.gradient(s, r.model, share) * share
				return nil
			})
			if err != nil {
				return err
			}
			done()
		}
		if math.IsNaN(total) || math.IsInf(total, 0) {
			return fmt.Errorf("%w: loss is %v", errNotFinite, total)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.WithGrad(false, func() error { return use(s, total, r.gradients(s)) })
	})
}

func (r *replica) gradients(s *torch.Scope) []*torch.Tensor {
	gradients := make([]*torch.Tensor, len(r.parameters))
	for i, p := range r.parameters {
		if gradients[i] = p.tensor.Grad(); gradients[i] == nil {
			gradients[i] = s.Zeros(torch.F32, p.shape...)
		}
		gradients[i] = gradients[i].Contiguous()
	}
	return gradients
}

// Evaluate returns the mean loss per token, in nats, over the sequences.
func (r *replica) Evaluate(ctx context.Context, sequences [][]int32) (float64, error) {
	if err := r.lock(ctx); err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	defer r.unlock()
	parts, tokens, err := r.cut(data.Batch{Sequences: sequences})
	if err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	network := r.model
	if r.parallel != nil {
		if network, err = r.parallel.evaluates(ctx); err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
	}
	total := 0.0
	for i, part := range parts {
		if r.evaluated != nil {
			r.evaluated(i, len(parts))
		}
		err := network.Engine().Do(ctx, false, func(s *torch.Scope) error {
			total += part.loss(s, network).Item() * float64(part.counted)
			return nil
		})
		if err == nil && (math.IsNaN(total) || math.IsInf(total, 0)) {
			err = fmt.Errorf("%w: loss is %v; are the weights damaged, or too large for the type that is computed in?", errNotFinite, total)
		}
		if err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
	}
	return total / float64(tokens), nil
}

// cut cuts a batch into micro-batches.
func (r *replica) cut(batch data.Batch) (parts []microBatch, tokens int64, err error) {
	return r.cutter.cut(batch, r.rows(batch))
}
