package train

import (
	"context"
	"fmt"
)

// Evaluator computes losses of a model without training it.
type Evaluator struct {
	*replica
}

// NewEvaluator builds the model in memory. It does not use the options of the optimizer and of the
// run.
func NewEvaluator(ctx context.Context, o Options) (*Evaluator, error) {
	r, err := newReplica(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("evaluator: %w", err)
	}
	return &Evaluator{r}, nil
}

// Watch sets a function that Evaluate calls before every micro batch, with the number of finished
// micro batches and their total. It must return quickly.
func (e *Evaluator) Watch(report func(done, all int)) { e.evaluated = report }
