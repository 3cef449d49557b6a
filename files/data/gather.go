package data

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// batches is the part of Provider that Gather needs.
type batches interface {
	Batch(ctx context.Context, id assign.BatchID) (Batch, error)
}

// gatherer is a Provider that reads several intervals at once, or answers one call at a time, with audits last.
type gatherer interface {
	Gather(ctx context.Context, id assign.BatchID, from []assign.BatchID, audit bool) (Batch, error)
}

// Gather reads a batch that consists of the sequences of several intervals, in their order, and gives it
// the ID id. The caller's own training does not wait for an audit of another member.
func Gather(ctx context.Context, p batches, id assign.BatchID, from []assign.BatchID, audit bool) (Batch, error) {
	if g, ok := p.(gatherer); ok {
		return g.Gather(ctx, id, from, audit)
	}
	return gather(ctx, p, id, from)
}

// gather reads one interval after the other. The batch has a Receipt only if it is one interval.
func gather(ctx context.Context, p batches, id assign.BatchID, from []assign.BatchID) (whole Batch, err error) {
	for i, part := range from {
		batch, err := p.Batch(ctx, part)
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
