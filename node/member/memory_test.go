package member

import (
	"context"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/torch"
)

// fullMemory is a trainer whose allocations fail.
type fullMemory struct{ trainer }

var errFull = &torch.Error{Op: "linear", Message: "CUDA out of memory. Tried to allocate 2.50 GiB"}

func (fullMemory) Train(context.Context, uint32, data.Batch, func(context.Context) error) ([]byte, float64, error) {
	return nil, 0, errFull
}

func (fullMemory) Apply(context.Context, uint32, [][]byte, []uint8, bool) error { return errFull }

// TestOutOfMemory checks that the errors of failed allocations, in training and in applying, state what would fit.
func TestOutOfMemory(t *testing.T) {
	requireTorch(t)
	f := newFactory(t, &observer{})
	built, err := f.Build(t.Context(), toyModel(t), definition(t, 32, ofTheHub, false))
	if err != nil {
		t.Fatal(err)
	}
	learner := &built.(*Trainer).Learner
	learner.trainer = fullMemory{learner.trainer}
	_, _, trainErr := learner.Train(t.Context(), 1, data.Batch{ID: assign.BatchID{End: 1}}, nil)
	for _, err := range []error{trainErr, learner.Apply(t.Context(), 1, nil, nil, false)} {
		if !errors.Is(err, torch.ErrMemory) || !fit.Advised(err) {
			t.Errorf("got %v", err)
		}
	}
}
