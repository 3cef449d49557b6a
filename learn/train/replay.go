package train

import (
	"context"
	"errors"
	"fmt"
	"math"

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
	rounds   *rounds
	residual *residual
	reader   *reader
	bounds   *localBounds
	computes torch.DType // type in which the replica computes
	keeper   *keeper
}

// values returns the values of the levels in a step's results.
func (rp *replayer) values(step uint32, results []codec.TensorResult) ([]codec.TensorResult, error) {
	return rp.residual.values(rp.rounds.rates.lr(step), results)
}

func (rp *replayer) rollBack(step uint32) error { return rp.residual.rollBack(step) }

func (rp *replayer) reference(uint32, [32]byte) *audit.Reference {
	return &audit.Reference{
		Decay: float32(rp.residual.config.ErrorDecay), Coarse: true, Longest: math.Inf(1), Most: math.Inf(1),
	}
}

// recompute repeats the steps of an earlier round that a trainer should have made on its batch. The
// resulting pseudo-gradient replaces the gradient. In addition to a copy of the weights it needs
// memory for a tensor and for the results of a round, because it computes the starting weights of
// the round again when they are needed.
func (rp *replayer) recompute(ctx context.Context, of *recomputing, batch data.Batch) (err error) {
	if of.x.Precision != precisionOf(rp.computes) {
		return fmt.Errorf("%w: steps in %v", errUnsupported, of.x.Precision)
	}
	if err := checkApplied(of.x, rp.replica.step); err != nil {
		return err
	}
	back, err := rp.keep(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, back()) }()
	r, err := rp.again(of)
	if err != nil {
		return err
	}
	if err := rp.goOn(ctx, r, batch); err != nil {
		if interrupted(ctx, err) {
			return errors.Join(err, rp.pause(r))
		}
		return err
	}
	if r.x.Shaken {
		if err := rp.tolerate(r); err != nil {
			return err
		}
	}
	return nil
}

// at returns the place where a recomputation moves the weights: where steps move them.
func (rp *replayer) at() place { return rp.rounds.inner.place }

// keep copies the weights at that place, and returns a function that restores them.
func (rp *replayer) keep(ctx context.Context) (back func() error, err error) {
	if rp.at().on == nil {
		if err := rp.replica.parallel.bring(ctx); err != nil {
			return nil, err
		}
	}
	return rp.replica.keepOn(ctx, rp.at().on)
}

// replay is the state of a recomputation that repeats the steps of a round.
type replay struct {
	*recomputing
	next int // next step

	begun [][]float32 // weights of the opened chunks at the start of the round
	ended [][]float32 // weights of the opened chunks after its steps; nil: not all steps are made

	// After an interruption, the state from which the next step continues.
	weights [][]float32
	means   [][]float32
	updates uint64
}

// again restores the model from the start of a round or, if the replay was interrupted, from its state
// then. The caller restores the current model.
func (rp *replayer) again(of *recomputing) (*replay, error) {
	if r, continues := of.state.(*replay); continues {
		of.state, of.bytes = nil, 0
		err := errors.Join(rp.at().write(r.weights), rp.rounds.inner.setAll(r.means))
		rp.rounds.inner.updates = r.updates
		r.weights, r.means = nil, nil
		return r, err
	}
	r := &replay{recomputing: of}
	err := rp.begin(r)
	if err == nil {
		r.begun, err = rp.opened(r)
	}
	return r, err
}

// begin restores the model from the start of a replay's round: it undoes the results applied since
// then on the kept weights.
func (rp *replayer) begin(r *replay) error {
	err := rp.at().restart()
	if err == nil {
		err = rp.takeBack(r.x)
	}
	r.next = 0
	return errors.Join(err, rp.rounds.inner.reset())
}

// takeBack undoes the results applied since a round. It decodes one round
// at a time, because the results of several rounds may take more memory than the model.
func (rp *replayer) takeBack(x audit.Recomputation) error {
	largest := 0
	for _, l := range rp.residual.layouts {
		largest = max(largest, l.Elements())
	}
	var room []float32
	if rp.at().on == nil {
		room = make([]float32, largest)
	}
	for _, a := range x.Applied {
		results, err := rp.reader.readAll(a.Step, a.Payloads)
		if err != nil {
			return fmt.Errorf("applied in step %d: %w", a.Step, err)
		}
		if err := rp.at().takeBack(rp.residual, results, a.Votes, rp.rounds.rates.lr(a.Step), room); err != nil {
			return fmt.Errorf("take back step %d: %w", a.Step, err)
		}
	}
	rp.replica.giveBack()
	return nil
}

// opened returns the current weights of the opened chunks.
func (rp *replayer) opened(r *replay) (chunks [][]float32, err error) {
	for _, c := range r.reference.Chunks {
		tensor, within, _ := r.reference.Shapes.Find(c)
		chunk, err := rp.at().chunk(rp.residual.layouts, tensor, within)
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, chunk)
	}
	return chunks, nil
}

// goOn makes the remaining steps of a replay, and then the steps from shaken weights.
func (rp *replayer) goOn(ctx context.Context, r *replay, batch data.Batch) (err error) {
	if r.ended == nil {
		if _, r.next, err = rp.rounds.train(ctx, r.x.Step, batch, r.next, nil); err == nil {
			err = rp.led(r)
		}
		if err == nil && r.x.Shaken {
			if err = rp.begin(r); err == nil {
				err = rp.at().shake()
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
	ended, err := rp.opened(r)
	if err == nil {
		err = rp.at().leave()
	}
	if err == nil {
		err = rp.takeBack(r.x)
	}
	if err != nil {
		return err
	}
	updates, err := rp.at().read()
	if err != nil {
		return err
	}
	r.ended = ended
	r.reference.Limits, r.reference.Shaky = audit.LocalLimits, true
	rp.bounds.fill(r.reference, r.begun)
	fill(r.reference, rp.residual.layouts, updates, 1)
	for n, update := range r.reference.Updates { // exact for these chunks: takeBack may miss the starting weights by a bit
		for j := range update {
			update[j] = r.begun[n][j] - r.ended[n][j]
		}
	}
	return nil
}

// pause keeps the progress of a replay, so that a trainer with little time at once can continue it
// later. Without memory for it, pause copies and keeps nothing.
func (rp *replayer) pause(r *replay) error {
	bytes := 4*uint64(rp.replica.Elements()) + rp.rounds.inner.size()
	if !rp.keeper.hasRoom(bytes) {
		return nil
	}
	weights, err := rp.at().read()
	if err != nil {
		return err
	}
	means, err := rp.rounds.inner.all()
	if err != nil {
		return err
	}
	r.weights, r.means, r.updates = cloneAll(weights), cloneAll(means), rp.rounds.inner.updates
	r.state, r.bytes = r, bytes
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
func (rp *replayer) tolerate(r *replay) error {
	shaken, err := rp.opened(r)
	if err != nil {
		return err
	}
	off, updates := make([]float64, len(r.ended)), make([]float64, len(r.ended))
	for i := range r.ended {
		off[i], updates[i] = distance(r.ended[i], shaken[i]), distance(r.begun[i], r.ended[i])
	}
	share := 0.0
	if whole := length(updates); whole > 0 {
		share = length(off) / whole
	}
	for i := range off {
		r.reference.Tolerance[i] += shaking * max(off[i], share*updates[i])
	}
	return nil
}
