package train

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// TestClosedModelIsRefused checks that calls that wait for a model while it is closed fail, and so
// do later calls. No call may touch the model's memory, which is freed.
func TestClosedModelIsRefused(t *testing.T) {
	trainer := newTestTrainer(t, lookingAhead) // look-ahead: Train writes to the weights before it calls the engine
	payload, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(ctx context.Context) error{
		"Apply": func(ctx context.Context) error { return trainer.Apply(ctx, 1, [][]byte{payload}, nil, true) },
		"Train": func(ctx context.Context) error {
			_, _, err := trainer.Train(ctx, 2, toyBatch(2, 4), nil)
			return err
		},
		"Evaluate": func(ctx context.Context) error {
			_, err := trainer.Evaluate(ctx, toyBatch(0, 2).Sequences)
			return err
		},
		"Snapshot": func(ctx context.Context) error {
			_, err := trainer.Snapshot(ctx)
			return err
		},
		"OptimizerState": func(ctx context.Context) error {
			_, err := trainer.OptimizerState(ctx)
			return err
		},
		"ResetOptimizer": trainer.ResetOptimizer,
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := trainer.lock(ctx); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for name, call := range calls {
		group.Go(func() {
			if err := call(ctx); !errors.Is(err, ErrClosed) {
				t.Errorf("%s, which waited: error = %v, want ErrClosed", name, err)
			}
		})
	}
	err = trainer.free() // like Close, which holds the lock too
	trainer.unlock()
	group.Wait()
	if err := errors.Join(err, trainer.Close()); err != nil {
		t.Error(err)
	}
	for name, call := range calls {
		if err := call(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: error = %v, want ErrClosed", name, err)
		}
	}
}
