package modelsync

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// fromArchive gets a model without a member: from locations that the user configured, or that members
// reported.
func (a *Attempt) fromArchive(ctx context.Context) (checkpoint.Snapshot, bool, error) {
	var err error
	for _, at := range append([]coordinator.Location{{}}, a.Places...) {
		snapshot, failed := a.Archive(ctx, *a.checkpoint(), at)
		if failed == nil {
			failed = a.adopt(ctx, snapshot, "archive")
		}
		if failed == nil {
			return a.Model.Snapshot, false, nil
		}
		if at != (coordinator.Location{}) {
			failed = fmt.Errorf("at %s: %w", at, failed)
		}
		if err == nil {
			err = fmt.Errorf("in archives: %w", failed)
		} else {
			err = fmt.Errorf("%w; %w", err, failed)
		}
	}
	return checkpoint.Snapshot{}, false, err
}
