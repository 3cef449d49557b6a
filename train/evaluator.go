package train

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/model"
)

// Evaluator is a model that is not trained, for its losses.
type Evaluator struct {
	*replica
}

// NewEvaluator builds the model in memory; see Options for the parameters.
func NewEvaluator(ctx context.Context, s checkpoint.Snapshot, microBatch, threads int, log *slog.Logger) (*Evaluator, error) {
	r, err := newReplica(ctx, s, model.Options{}, microBatch, threads, log)
	if err != nil {
		return nil, fmt.Errorf("evaluator: %w", err)
	}
	return &Evaluator{r}, nil
}
