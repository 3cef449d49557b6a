package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
)

// A round of local steps is audited like a step of DisTrO (examine.go), with the pseudo-gradient
// instead of the gradient and the residuals instead of the momentum. The running means start as
// zeros in each round then, so that a member's steps are determined by the common weights and its
// batch alone, and other members can repeat them.

// replayer audits rounds of local steps. It implements examiner.
type replayer struct {
	replica  *replica
	rounds   *rounds // on the CPU; inner is nil until the first recomputation if steps are made on a device
	muon     *muon
	residual *residual
	reader   *reader
	bounds   *localBounds
	computes torch.DType // type in which the replica computes
	paused   *replay     // a round whose repetition was interrupted because other work needed the trainer; nil: none
}

// values returns the values of the levels in a step's results.
func (rp *replayer) values(step uint32, results []codec.TensorResult) ([]codec.TensorResult, error) {
	return rp.residual.values(rp.rounds.rates.lr(step), results)
}

func (rp *replayer) rollBack(step uint32) error { return rp.residual.rollBack(step) }

func (rp *replayer) drop() { rp.paused = nil }

func (rp *replayer) reference(uint32, [32]byte) *audit.Reference {
	return &audit.Reference{
		Decay: float32(rp.residual.config.ErrorDecay), Coarse: true, Longest: math.Inf(1), Most: math.Inf(1),
	}
}

// recompute repeats the steps of an earlier round that a trainer should have made on its batch. The
// resulting pseudo-gradient replaces the gradient. In addition to a copy of the weights it needs
// memory for a tensor and for the results of a round, because it computes the starting weights of
// the round again when they are needed.
func (rp *replayer) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) error {
	if x.Precision != precisionOf(rp.computes) {
		return fmt.Errorf("%w: steps in %v", errUnsupported, x.Precision)
	}
	if err := checkApplied(x, rp.replica.step); err != nil {
		return err
	}
	if err := rp.prepare(ctx); err != nil {
		return err
	}
	defer rp.replica.keep()()
	r, err := rp.again(x, batch.Hash(), reference)
	if err != nil {
		return err
	}
	if err := rp.goOn(ctx, r, batch); err != nil {
		if stopped := ctx.Err(); stopped != nil && errors.Is(err, stopped) && !errors.Is(err, errTorn) {
			return errors.Join(err, rp.pause(r))
		}
		return err
	}
	if r.x.Shaken {
		rp.tolerate(r)
	}
	*reference = *r.reference
	return nil
}

// prepare brings the weights to the memory of the CPU, where the steps of a recomputation move them.
// Devices compute the gradients.
func (rp *replayer) prepare(ctx context.Context) (err error) {
	if rp.rounds.inner == nil {
		at := place{store: rp.replica.store}
		if rp.rounds.inner, err = newUpdater(ctx, at, rp.bounds.config.Inner(), rp.muon); err != nil {
			return err
		}
	}
	return rp.replica.parallel.bring(ctx)
}

// replay is the repetition of a round, as far as it has come.
type replay struct {
	x     audit.Recomputation // without the applied results if it was interrupted
	batch [32]byte            // hash of its tokens: another server's tokens may differ
	next  int                 // next step

	reference *audit.Reference
	begun     [][]float32 // weights of the opened chunks at the start of the round
	ended     [][]float32 // weights of the opened chunks after its steps; nil: not all steps are made

	// After an interruption, the state from which the next step continues.
	weights [][]float32
	means   [][]float32
	updates uint64
}

// isOf reports whether a replay is the requested one, with the same tokens.
func (r *replay) isOf(x audit.Recomputation, batch [32]byte) bool {
	return r != nil && r.x.Step == x.Step && r.x.Trainer == x.Trainer && r.batch == batch && r.x.Shaken == x.Shaken && slices.Equal(r.x.Chunks, x.Chunks)
}

// again restores the model from the start of a round or, if the same replay was interrupted, from
// its state then. The caller restores the current model.
func (rp *replayer) again(x audit.Recomputation, batch [32]byte, reference *audit.Reference) (*replay, error) {
	if r := rp.paused; r.isOf(x, batch) {
		rp.paused = nil
		copyAll(rp.replica.weights(), r.weights)
		err := rp.rounds.inner.setAll(r.means)
		rp.rounds.inner.updates = r.updates
		r.x, r.weights, r.means = x, nil, nil // more may have been applied since
		rp.replica.changed()
		return r, err
	}
	r := &replay{x: x, batch: batch, reference: reference}
	err := rp.begin(r)
	r.begun = rp.opened(r)
	return r, err
}

// begin restores the model from the start of a replay's round: it undoes the results applied since
// then on the kept weights.
func (rp *replayer) begin(r *replay) error {
	copyAll(rp.replica.weights(), rp.replica.kept)
	err := rp.takeBack(r.x, rp.replica.weights())
	rp.replica.changed()
	r.next = 0
	return errors.Join(err, rp.rounds.inner.reset())
}

// takeBack undoes the results applied since a round in values of all weights. It decodes one round
// at a time, because the results of several rounds may take more memory than the model.
func (rp *replayer) takeBack(x audit.Recomputation, values [][]float32) error {
	largest := 0
	for _, of := range values {
		largest = max(largest, len(of))
	}
	moved := make([]float32, largest)
	for _, a := range x.Applied {
		results, err := rp.reader.readAll(a.Step, a.Payloads)
		if err != nil {
			return fmt.Errorf("applied in step %d: %w", a.Step, err)
		}
		lr := rp.rounds.rates.lr(a.Step)
		for i, of := range values {
			moved := moved[:len(of)]
			clear(moved)
			if err := rp.residual.apply(i, results, a.Votes, moved, lr); err != nil {
				return fmt.Errorf("take back step %d, tensor %d: %w", a.Step, i, err)
			}
			for j := range moved {
				of[j] -= moved[j]
			}
		}
	}
	moved = nil
	rp.replica.giveBack()
	return nil
}

// opened returns the current weights of the opened chunks.
func (rp *replayer) opened(r *replay) (chunks [][]float32) {
	weights := rp.replica.weights()
	for _, c := range r.reference.Chunks {
		tensor, within, _ := r.reference.Shapes.Find(c)
		chunks = append(chunks, rp.residual.layouts[tensor].Chunk(weights[tensor], within, nil))
	}
	return chunks
}

// goOn makes the remaining steps of a replay, and then the steps from shaken weights.
func (rp *replayer) goOn(ctx context.Context, r *replay, batch data.Batch) (err error) {
	if r.ended == nil {
		if _, r.next, err = rp.rounds.train(ctx, r.x.Step, batch, r.next, nil); err == nil {
			err = rp.led(r)
		}
		if err == nil && r.x.Shaken {
			err = rp.begin(r)
			for _, w := range rp.replica.weights() {
				shake(w)
			}
		}
	}
	if err == nil && r.x.Shaken {
		_, r.next, err = rp.rounds.train(ctx, r.x.Step, batch, r.next, nil)
	}
	return err
}

// led fills in a replay's reference from the resulting weights. It overwrites the model's weights.
func (rp *replayer) led(r *replay) error {
	r.ended = rp.opened(r)
	weights := rp.replica.weights()
	for i, w := range weights {
		for j := range w {
			w[j] = rp.replica.kept[i][j] - w[j]
		}
	}
	if err := rp.takeBack(r.x, weights); err != nil {
		return err
	}
	r.reference.Limits, r.reference.Shaky = audit.LocalLimits, true
	rp.bounds.fill(r.reference, r.begun)
	fill(r.reference, rp.residual.layouts, weights, 1)
	for n, update := range r.reference.Updates { // exact for these chunks: takeBack may miss the starting weights by a bit
		for j := range update {
			update[j] = r.begun[n][j] - r.ended[n][j]
		}
	}
	return nil
}

// pause keeps the progress of a replay, so that a trainer with little time at once can continue it
// later. For a model without memory for copies it keeps nothing.
func (rp *replayer) pause(r *replay) error {
	if rp.replica.large() {
		return nil
	}
	means, err := rp.rounds.inner.all()
	if err != nil {
		return err
	}
	r.weights, r.means, r.updates = cloneAll(rp.replica.weights()), cloneAll(means), rp.rounds.inner.updates
	r.x.Applied, rp.paused = nil, r
	return nil
}

// shaking is the tolerance between honest trainers divided by the observed effect of shaken
// weights. It is more than 1, because a single observation is only a sample of the possible
// effects.
const shaking = 8

// tolerate increases each chunk's tolerance by the effect of shaken starting weights, times shaking.
// The effect is the distance between the current weights, which result from shaken ones, and the
// weights that result from the right ones. Relative to its update, a chunk's effect counts as at
// least the effect in all chunks together, because chance determines in which chunks it is larger.
func (rp *replayer) tolerate(r *replay) {
	weights := rp.replica.weights()
	off, updates := make([]float64, len(r.ended)), make([]float64, len(r.ended))
	var shaken []float32
	for i, c := range r.reference.Chunks {
		tensor, within, _ := r.reference.Shapes.Find(c)
		shaken = rp.residual.layouts[tensor].Chunk(weights[tensor], within, shaken)
		off[i], updates[i] = distance(r.ended[i], shaken), distance(r.begun[i], r.ended[i])
	}
	share := 0.0
	if whole := length(updates); whole > 0 {
		share = length(off) / whole
	}
	for i := range off {
		r.reference.Tolerance[i] += shaking * max(off[i], share*updates[i])
	}
}
