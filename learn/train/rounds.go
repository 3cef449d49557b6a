package train

import (
	"context"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
)

// rounds makes the local steps of rounds. It moves the weights of the replica, at the place of inner. The caller must hold
// the lock of the replica.
type rounds struct {
	replica *replica
	rates   *rates
	inner   *updater
	steps   uint64        // inner_steps
	took    time.Duration // of the gradients of the newest call of train
}

// train makes the steps of a round on the parts of a batch, starting with part from. It returns the
// sum of their losses divided by the number of all parts, and the next step. It reports the
// statistics of the round's last step, unless report is nil.
func (r *rounds) train(ctx context.Context, step uint32, batch data.Batch, from int, report func(rate float32, length float64, gradients []*torch.Tensor)) (loss float64, next int, err error) {
	parts := cutSteps(batch, r.steps)
	r.took = 0
	r.replica.progress.divide(len(parts))
	for next = from; next < len(parts); next++ {
		last := report
		if next < len(parts)-1 {
			last = nil
		}
		mean, err := r.innerStep(ctx, step, parts[next], last)
		if err != nil {
			return 0, next, fmt.Errorf("step %d of %d: %w", next+1, len(parts), err)
		}
		loss += mean / float64(len(parts))
	}
	return loss, next, nil
}

// innerStep makes one step on a part of a batch.
func (r *rounds) innerStep(ctx context.Context, step uint32, part data.Batch, report func(rate float32, length float64, gradients []*torch.Tensor)) (loss float64, err error) {
	rate, started := r.rates.lr(step), time.Now()
	err = r.replica.gradientAt(ctx, r.inner.place, part, func(s *torch.Scope, mean float64, gradients []*torch.Tensor) error {
		loss = mean
		length, err := r.inner.place.norm(s, gradients) // waits for the end of the backward pass on a device
		if err != nil {
			return err
		}
		r.took += time.Since(started)
		if err := r.inner.update(ctx, s, rate, gradients, length); err != nil {
			return err
		}
		if report != nil {
			report(rate, length, gradients)
		}
		return nil
	})
	return loss, err
}

// cutSteps cuts a batch into one part for each step, in its order, with sizes as equal as possible.
// It omits parts without a target that counts, so there may be fewer parts.
func cutSteps(batch data.Batch, steps uint64) (parts []data.Batch) {
	n := batch.ID.Len()
	steps = min(steps, n)
	for i := range steps {
		first, end := n*i/steps, n*(i+1)/steps
		part := data.Batch{
			ID:        assign.BatchID{Start: batch.ID.Start + first, End: batch.ID.Start + end},
			Sequences: batch.Sequences[first:end],
		}
		if uint64(len(batch.Labels)) == n {
			if part.Labels = batch.Labels[first:end]; !anyCounts(part.Labels) {
				continue
			}
		}
		if uint64(len(batch.Positions)) == n {
			part.Positions = batch.Positions[first:end]
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return []data.Batch{batch} // its gradient returns the error
	}
	return parts
}

func anyCounts(labels [][]int32) bool {
	for _, sequence := range labels {
		for _, label := range sequence[min(1, len(sequence)):] {
			if label != data.IgnoreLabel {
				return true
			}
		}
	}
	return false
}
