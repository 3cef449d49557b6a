package modelsync

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
)

// archive is the source that needs no member: locations that the user configured, or that members
// reported.
type archive struct{}

func (archive) model(ctx context.Context, a *Attempt) (checkpoint.Snapshot, bool, error) {
	var err error
	for _, at := range append([]coordinator.Place{{}}, a.Places...) {
		snapshot, failed := a.Archive(ctx, *a.checkpoint(), at)
		if failed == nil {
			failed = a.adopt(ctx, snapshot, "archive")
		}
		if failed == nil {
			return a.Model.Snapshot, false, nil
		}
		if at != (coordinator.Place{}) {
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
