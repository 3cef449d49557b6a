package train

import (
	"context"
	"fmt"
)

// Evaluator is a model that is not trained, for its losses.
type Evaluator struct {
	*replica
}

// NewEvaluator builds the model in memory. Of the options those of the optimizer and of
// the run are not used.
func NewEvaluator(ctx context.Context, o Options) (*Evaluator, error) {
	r, err := newReplica(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("evaluator: %w", err)
	}
	return &Evaluator{r}, nil
}

// Watch has told called before every micro batch of Evaluate, with how many of all are done. It must return quickly.
func (e *Evaluator) Watch(told func(done, all int)) { e.evaluated = told }
