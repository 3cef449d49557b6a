package data

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// Gather reads a batch that consists of the sequences of several intervals, in their order, and gives it
// the ID id. It has a Receipt only if it is one interval.
func Gather(ctx context.Context, id assign.BatchID, from []assign.BatchID, read func(ctx context.Context, part assign.BatchID) (Batch, error)) (whole Batch, err error) {
	for i, part := range from {
		batch, err := read(ctx, part)
		if err != nil {
			return Batch{}, err
		}
		if err := batch.check(part); err != nil {
			return Batch{}, err
		}
		if i == 0 {
			whole = batch
			continue
		}
		if (batch.Labels == nil) != (whole.Labels == nil) || (batch.Positions == nil) != (whole.Positions == nil) {
			return Batch{}, fmt.Errorf("read batch %v: only some of its sequences have labels or positions; check the data", id)
		}
		whole.Sequences = append(slices.Clip(whole.Sequences), batch.Sequences...)
		whole.Labels = append(slices.Clip(whole.Labels), batch.Labels...)
		whole.Positions = append(slices.Clip(whole.Positions), batch.Positions...)
		whole.Receipt = nil
	}
	whole.ID = id
	return whole, whole.check(id)
}
