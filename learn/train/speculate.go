package train

import (
	"context"
	"errors"
	"fmt"
)

// Speculate moves the weights by the results that a step will most likely have, as Apply does, so
// that Train of a later step can start. The speculation becomes part of the model when Confirm, or
// Apply with the same results, is called. Any other call except Train undoes it, bit for bit.
// Speculate returns false if it is not possible: for an optimizer whose training moves the weights
// itself, and for a model of more than a GiB in f32, for which there is no memory for a copy.
func (t *Trainer) Speculate(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) (done bool, err error) {
	if !t.speculates || t.large() {
		return false, nil
	}
	if err := t.speculate(ctx, step, payloads, votes, ownCounted); err != nil {
		return false, fmt.Errorf("speculate on step %d: %w", step, err)
	}
	return true, nil
}

func (t *Trainer) speculate(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error {
	results, err := t.reader.readAll(step, payloads)
	if err != nil {
		return err
	}
	if err := t.lock(ctx); err != nil {
		return err
	}
	defer t.unlock()
	if err := t.checkNext(step); err != nil {
		return err
	}
	back, err := t.keepOn(ctx, t.parallel.resides())
	if err != nil {
		return err
	}
	if err := t.exchange.move(ctx, step, results, votes); err != nil {
		return errors.Join(err, back())
	}
	t.speculated.start(&speculation{
		step: step, payloads: payloads, votes: votes, ownCounted: ownCounted, back: back,
		finalize: func() error { return t.finalize(step, ownCounted) },
	})
	return nil
}

// Confirm confirms the speculation about a step, and returns false if it was already undone. It
// does not block, and may be called while Train runs.
func (t *Trainer) Confirm(step uint32) bool { return t.speculated.confirm(step) }
