package train

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/core/codec"
)

// moveWeights applies results to the weights and, concurrently, to the copies on devices with an
// applier. These copies then have the same bits and need no refresh, which is checked now and then.
// A copy that differed before, for example because of lookahead, waits for its refresh; so does one
// whose applier failed.
func (t *Trainer) moveWeights(ctx context.Context, results [][]codec.TensorResult, lr float32) error {
	var copies []*apart
	for _, a := range t.parallel.apart() {
		if a.applier != nil && a.seen == t.changes {
			copies = append(copies, a)
		}
	}
	t.changed() // all copies need a refresh, until they are known to be equal
	var group sync.WaitGroup
	failures := make([]error, len(copies))
	for i, a := range copies {
		group.Go(func() { failures[i] = a.move(context.WithoutCancel(ctx), t.optimizer, results, lr) })
	}
	err := t.optimizer.apply(t.weights(), results, lr)
	group.Wait()
	if err != nil {
		return err
	}
	telling := lr > 0 && !empty(results)
	for i, a := range copies {
		failure := failures[i]
		if failure == nil && telling {
			failure = a.check(context.WithoutCancel(ctx))
		}
		if failure == nil {
			a.seen = t.changes
			continue
		}
		t.log.Warn("the optimizer's kernels failed on the device: weights will be copied there for every step from now on",
			"device", a.twin.Engine().Device().String(), "because", errors.Join(failure, a.closeMover()))
	}
	return nil
}

// empty reports whether results have no coefficients, as the first ones of a cold start. Applying
// such results shows little about the applier's arithmetic.
func empty(results [][]codec.TensorResult) bool {
	for _, result := range results {
		for _, tensor := range result {
			if slices.ContainsFunc(tensor.Counts, func(n uint16) bool { return n > 0 }) {
				return false
			}
		}
	}
	return true
}
