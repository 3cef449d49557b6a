package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/torch"
)

// lookback restores earlier weights of a replica that has applied results of DisTrO.
type lookback struct {
	replica   *replica
	rates     *rates
	reader    *reader
	optimizer *optimizer
}

// restore restores the weights from before results were applied. The returned function back undoes
// this, bit for bit. It must also be called after an error, because some tensors may have changed.
func (l *lookback) restore(ctx context.Context, x audit.Recomputation) (back func() error, err error) {
	steps, err := l.appliedSteps(x)
	if err != nil || len(steps) == 0 {
		return func() error { return nil }, err
	}
	if on := l.replica.parallel.resides(); on != nil && !l.replica.large() {
		return l.restoreThere(ctx, on, steps)
	}
	if err := l.replica.parallel.bring(ctx); err != nil {
		return func() error { return nil }, err
	}
	return l.restoreHere(steps)
}

// restoreThere is restore on devices. Meanwhile each owner keeps a copy of its weights.
func (l *lookback) restoreThere(ctx context.Context, on *shards, steps []appliedStep) (back func() error, err error) {
	back = func() error { return nil }
	moved, err := on.allocate(ctx)
	if err != nil {
		return back, err
	}
	if back, err = l.replica.keepOn(ctx, on); err != nil {
		return func() error { return nil }, errors.Join(err, on.free(moved))
	}
	at := place{l.replica.store, on}
	weights := on.weights()
	for _, s := range steps {
		factor := s.params.WeightFactor
		s.params.WeightFactor = 1
		err = on.do(context.WithoutCancel(ctx), nil, func(_ *torch.Scope, a *apart, tensors []int) error {
			for _, i := range tensors {
				moved[i].MulScalarInPlace(0)
			}
			if err := a.share.Apply(pickEach(s.results, tensors), addresses(pick(moved, tensors)), s.params); err != nil { // by −lr·sign
				return err
			}
			for _, i := range tensors {
				weights[i].Detach().AddInPlace(moved[i], -1).MulScalarInPlace(1 / float64(factor))
			}
			return nil
		})
		at.changed()
		if err != nil {
			break
		}
	}
	return back, errors.Join(err, on.free(moved))
}

// restoreHere is restore in the memory of the CPU, without a copy of the weights: back applies the
// results again, which is off by a few units in the last place, and corrects that by stored
// differences, a byte for each weight.
func (l *lookback) restoreHere(steps []appliedStep) (back func() error, err error) {
	var kept []corrections
	back = func() error {
		for i, c := range kept {
			if err := l.redo(i, steps, l.replica.parameters[i].weights); err != nil {
				return err
			}
			c.correct(l.replica.parameters[i].weights)
		}
		if len(kept) > 0 {
			l.replica.changed()
		}
		return nil
	}
	largest := 0
	for _, p := range l.replica.parameters {
		largest = max(largest, len(p.weights))
	}
	was, again := make([]float32, largest), make([]float32, largest)
	l.replica.changed()
	for i, p := range l.replica.parameters {
		was, again := was[:len(p.weights)], again[:len(p.weights)]
		copy(was, p.weights)
		err := l.undo(i, steps, p.weights, again)
		if err == nil {
			copy(again, p.weights)
			err = l.redo(i, steps, again)
		}
		if err != nil {
			copy(p.weights, was)
			return back, fmt.Errorf("tensor %d: %w", i, err)
		}
		kept = append(kept, newCorrections(was, again))
	}
	was, again = nil, nil
	l.replica.giveBack()
	return back, nil
}

// appliedStep contains the results that moved the weights in a step.
type appliedStep struct {
	results [][]codec.TensorResult
	params  distro.ApplyParams
}

// appliedSteps decodes the results applied since the step that is recomputed, newest first.
func (l *lookback) appliedSteps(x audit.Recomputation) ([]appliedStep, error) {
	if err := checkApplied(x, l.replica.step); err != nil {
		return nil, err
	}
	steps := make([]appliedStep, len(x.Applied))
	for i, a := range x.Applied {
		var err error
		if steps[i].results, err = l.reader.readAll(a.Step, a.Payloads); err != nil {
			return nil, fmt.Errorf("applied in step %d: %w", a.Step, err)
		}
		if steps[i].params, err = l.optimizer.applyParams(a.Votes, l.rates.lr(a.Step)); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

// undo moves the weights of a tensor back by the steps, newest first. moved is a buffer of the same
// length.
func (l *lookback) undo(tensor int, steps []appliedStep, weights, moved []float32) error {
	for _, s := range steps {
		clear(moved)
		factor := s.params.WeightFactor
		s.params.WeightFactor = 1
		if err := l.optimizer.applyTensor(tensor, s.results, moved, s.params); err != nil { // by −lr·sign
			return err
		}
		for i, w := range weights {
			weights[i] = (w - moved[i]) / factor
		}
	}
	return nil
}

// redo moves the weights of a tensor again by the steps, given newest first.
func (l *lookback) redo(tensor int, steps []appliedStep, weights []float32) error {
	for _, s := range slices.Backward(steps) {
		if err := l.optimizer.applyTensor(tensor, s.results, weights, s.params); err != nil {
			return err
		}
	}
	return nil
}

// corrections turns approximate weights into the exact ones.
type corrections struct {
	off   []int8   // in units of the last place of each weight; the value other means the next of exact
	exact []uint32 // bits of the weights that are too far off, in their order
}

const other = math.MinInt8

func newCorrections(right, near []float32) (c corrections) {
	c.off = make([]int8, len(right))
	for i, w := range right {
		bits := math.Float32bits(w)
		off := int32(bits - math.Float32bits(near[i]))
		if off <= other || off > math.MaxInt8 {
			off = other
			c.exact = append(c.exact, bits)
		}
		c.off[i] = int8(off)
	}
	return c
}

// correct corrects the weights.
func (c corrections) correct(near []float32) {
	exact := c.exact
	for i, off := range c.off {
		bits := math.Float32bits(near[i]) + uint32(int32(off))
		if off == other {
			bits, exact = exact[0], exact[1:]
		}
		near[i] = math.Float32frombits(bits)
	}
}
