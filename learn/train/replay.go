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
	"github.com/psyche-go/psyche/learn/localsteps"
)

// A round of local steps is audited like a step of DisTrO (examine.go), with the pseudo-gradient
// instead of the gradient and the residuals instead of the momentum. The running means start as
// zeros in each round then, so that a member's steps are determined by the common weights and its
// batch alone, and other members can repeat them.

// Precisions returns the training type of the rounds. In other types the same steps have different
// results.
func (t *LocalTrainer) Precisions() []audit.Precision {
	return []audit.Precision{precisionOf(t.computes)}
}

// Decode decodes the part of a payload that Verify checks, with the values of its levels: a part of
// audit.Claim.
func (t *LocalTrainer) Decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	header, results, known := t.decoded.get(payload)
	if !known {
		var err error
		if header, results, err = t.read(payload); err != nil {
			return codec.Header{}, nil, err
		}
	}
	values, err := t.valued(header.Step, results)
	return header, values, err
}

// valued returns the values of the levels in a step's results.
func (t *LocalTrainer) valued(step uint32, results []codec.TensorResult) ([]codec.TensorResult, error) {
	values := make([]codec.TensorResult, len(results))
	for i, l := range t.layouts {
		var err error
		if values[i], err = localsteps.Values(l, results[i], t.reach(step), 1); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	return values, nil
}

// tookBack handles the rollback of a step's result.
func (t *LocalTrainer) tookBack(step uint32) { delete(t.sent, step) }

// reference returns the rules' part of a step's reference.
func (t *LocalTrainer) reference(step uint32, trainer [32]byte) *audit.Reference {
	return &audit.Reference{
		Shapes: t.Shapes(), Step: step, Trainer: trainer, Decay: float32(t.config.ErrorDecay), Coarse: true,
		Longest: math.Inf(1), Most: math.Inf(1),
	}
}

// recompute repeats the steps of an earlier round that a trainer should have made on its batch. The
// resulting pseudo-gradient replaces the gradient. In addition to a copy of the weights it needs
// memory for a tensor and for the results of a round, because it computes the starting weights of
// the round again when they are needed.
func (t *LocalTrainer) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) error {
	if x.Precision != precisionOf(t.computes) {
		return fmt.Errorf("%w: steps in %v", errUnsupported, x.Precision)
	}
	if err := t.checkApplied(x); err != nil {
		return err
	}
	defer t.keep()()
	r, err := t.again(x, batch.Hash(), reference)
	if err != nil {
		return err
	}
	if err := t.goOn(ctx, r, batch); err != nil {
		if stopped := ctx.Err(); stopped != nil && errors.Is(err, stopped) && !errors.Is(err, errTorn) {
			t.pause(r)
		}
		return err
	}
	if r.x.Shaken {
		t.blur(r)
	}
	*reference = *r.reference
	return nil
}

// replay is the repetition of a round, as far as it has come.
type replay struct {
	x     audit.Recomputation // without the applied results if it was interrupted
	batch [32]byte            // hash of its tokens: another server's tokens may differ
	next  int                 // next step

	reference *audit.Reference
	begun     [][]float32 // weights of the opened chunks at the start of the round
	ended     [][]float32 // and after its steps; nil: not all steps are made

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
func (t *LocalTrainer) again(x audit.Recomputation, batch [32]byte, reference *audit.Reference) (*replay, error) {
	if r := t.paused; r.isOf(x, batch) {
		t.paused = nil
		copyAll(t.weights(), r.weights)
		copyAll(t.inner.all(), r.means)
		t.inner.updates = r.updates
		r.x, r.weights, r.means = x, nil, nil // more may have been applied since
		t.changed()
		return r, nil
	}
	r := &replay{x: x, batch: batch, reference: reference}
	err := t.begin(r)
	r.begun = t.opened(r)
	return r, err
}

// begin restores the model from the start of a replay's round: it undoes the results applied since
// then on the kept weights.
func (t *LocalTrainer) begin(r *replay) error {
	copyAll(t.weights(), t.kept)
	err := t.takeBack(r.x, t.weights())
	t.changed()
	t.inner.forget()
	r.next = 0
	return err
}

// takeBack undoes the results applied since a round in values of all weights. It decodes one round
// at a time, because the results of several rounds may take more memory than the model.
func (t *LocalTrainer) takeBack(x audit.Recomputation, values [][]float32) error {
	largest := 0
	for _, of := range values {
		largest = max(largest, len(of))
	}
	moved := make([]float32, largest)
	for _, a := range x.Applied {
		results, err := t.decodeAll(a.Step, a.Payloads)
		if err != nil {
			return fmt.Errorf("applied in step %d: %w", a.Step, err)
		}
		for i, of := range values {
			moved := moved[:len(of)]
			clear(moved)
			if err := localsteps.Apply(t.kernel, t.layouts[i], ofTensor(results, i), moved, t.applyParams(a.Step)); err != nil {
				return fmt.Errorf("take back step %d, tensor %d: %w", a.Step, i, err)
			}
			for j := range moved {
				of[j] -= moved[j]
			}
		}
	}
	moved = nil
	t.giveBack()
	return nil
}

// opened returns the current weights of the opened chunks.
func (t *LocalTrainer) opened(r *replay) (chunks [][]float32) {
	weights := t.weights()
	for _, c := range r.reference.Chunks {
		tensor, within, _ := r.reference.Shapes.Find(c)
		chunks = append(chunks, t.layouts[tensor].Chunk(weights[tensor], within, nil))
	}
	return chunks
}

// goOn makes the remaining steps of a replay, and then the steps from shaken weights.
func (t *LocalTrainer) goOn(ctx context.Context, r *replay, batch data.Batch) (err error) {
	if r.ended == nil {
		if _, r.next, err = t.steps(ctx, r.x.Step, batch, r.next, false); err == nil {
			err = t.led(r)
		}
		if err == nil && r.x.Shaken {
			err = t.begin(r)
			for _, w := range t.weights() {
				shake(w)
			}
		}
	}
	if err == nil && r.x.Shaken {
		_, r.next, err = t.steps(ctx, r.x.Step, batch, r.next, false)
	}
	return err
}

// led fills in a replay's reference from the resulting weights. It overwrites the model's weights.
func (t *LocalTrainer) led(r *replay) error {
	r.ended = t.opened(r)
	weights := t.weights()
	for i, w := range weights {
		for j := range w {
			w[j] = t.kept[i][j] - w[j]
		}
	}
	if err := t.takeBack(r.x, weights); err != nil {
		return err
	}
	r.reference.Limits, r.reference.Shaky = audit.LocalLimits, true
	t.bound(r.reference, r.begun)
	fill(r.reference, t.layouts, weights, 1)
	for n, update := range r.reference.Updates { // from the start of its steps, which undoing more rounds may miss by a bit
		for j := range update {
			update[j] = r.begun[n][j] - r.ended[n][j]
		}
	}
	return nil
}

// pause keeps the progress of a replay, so that a trainer with little time at once can continue it
// later. For a model without memory for copies it keeps nothing.
func (t *LocalTrainer) pause(r *replay) {
	if t.large() {
		return
	}
	r.weights, r.means, r.updates = cloneAll(t.weights()), cloneAll(t.inner.all()), t.inner.updates
	r.x.Applied, t.paused = nil, r
}

// shake changes weights in their last bits, with alternating signs in a pattern that no tensor's
// shape matches.
func shake(weights []float32) {
	const off = 1 << 4 // in units of the last place
	state := uint32(1)
	for i, w := range weights {
		state = state*1664525 + 1013904223
		bits := math.Float32bits(w)
		if state>>31 == 0 {
			bits += off
		} else if bits<<1 >= 2*off { // only if the sign does not change
			bits -= off
		}
		weights[i] = math.Float32frombits(bits)
	}
}

// shaking is the factor between the observed effect of shaken weights and the tolerance between
// honest trainers. A single observation is only a sample of the possible effects.
const shaking = 8

// blur adds the distance between the current weights and the results of steps with other starting
// weights, in each chunk. Relative to its update, the distance in a chunk is at least that of all
// chunks together, since chance determines which of them differ more.
func (t *LocalTrainer) blur(r *replay) {
	weights := t.weights()
	off, updates := make([]float64, len(r.ended)), make([]float64, len(r.ended))
	var shaken []float32
	for i, c := range r.reference.Chunks {
		tensor, within, _ := r.reference.Shapes.Find(c)
		shaken = t.layouts[tensor].Chunk(weights[tensor], within, shaken)
		off[i], updates[i] = distance(r.ended[i], shaken), distance(r.begun[i], r.ended[i])
	}
	share := 0.0
	if whole := length(updates); whole > 0 {
		share = length(off) / whole
	}
	for i := range off {
		r.reference.Blur[i] += shaking * max(off[i], share*updates[i])
	}
}

// unseen is the fraction of a weight by which rounding may hide its change: restored weights are
// off by a bit or two, and each step rounds.
const unseen = 1.0 / (1 << 21)

// bound fills in the maximum change of the weights in the chunks of a reference, given their values
// at the start of the round.
func (t *LocalTrainer) bound(reference *audit.Reference, begun [][]float32) {
	widest, elements, largest := 0.0, 0, 0
	for _, chunk := range begun {
		for _, w := range chunk {
			widest = max(widest, math.Abs(float64(w)))
		}
		elements, largest = elements+len(chunk), max(largest, len(chunk))
		reference.Blur = append(reference.Blur, unseen*norm([][]float32{chunk}))
	}
	// A power of two, so that auditors whose weights differ by a bit get the same value. At least
	// twice the maximum, because weights differed in earlier rounds, and change in this one.
	_, exponent := math.Frexp(2 * (widest + t.farthest(reference.Step, 0)))
	weight := math.Ldexp(1, exponent)
	reference.Most = t.farthest(reference.Step, weight) * math.Sqrt(float64(elements))
	const negligible = 1e-9
	longest, factor := 0.0, 1.0
	for s := reference.Step; s >= 1 && factor > negligible; s-- {
		longest += factor * t.farthest(s, weight)
		factor *= t.config.ErrorDecay
	}
	reference.Longest = longest * math.Sqrt(float64(largest))
}

// longest returns the maximum change by the steps of a round in a chunk, as a root mean square and
// in learning rates, without weight decay: see quotients. For Muon no singular value is above
// muonLargest, so a chunk of r × c is at most that long, times the root of the smaller of the two.
func (t *LocalTrainer) longest(r *replica) float64 {
	longest := quotients(t.config.Betas, int(t.config.InnerSteps))
	for i, p := range r.parameters {
		if t.inner.byMuon(p) {
			rows, columns := t.layouts[i].ChunkShape()
			matrix := slices.Max(p.shape[len(p.shape)-2:])
			step := muonLargest * muonLength * math.Sqrt(float64(matrix)/float64(max(rows, columns)))
			longest = max(longest, step*float64(t.config.InnerSteps))
		}
	}
	return longest
}

// farthest returns the maximum change of the weights of a chunk by the steps of a round, as a root
// mean square, if each weight is at most half of weight. A step rounds each weight twice, by at
// most half a unit in its last place, which exceeds the step itself if the learning rate is small.
func (t *LocalTrainer) farthest(step uint32, weight float64) float64 {
	const rounded = 1.0 / (1 << 25)
	steps := float64(t.config.InnerSteps)
	return float64(t.lr(step))*(t.quotients+steps*t.config.WeightDecay*weight) + steps*rounded*weight
}

// quotients returns the maximum sum of the quotients of AdamW's two means in a number of steps from
// zeros, by the Cauchy-Schwarz inequality. For each step it is
//
//	(1 − β₁)/(1 − β₁ᵗ) · √((1 − β₂ᵗ)/(1 − β₂)) · √(Σ (β₁²/β₂)ⁱ), i from 0 to t − 1
func quotients(betas [2]float64, steps int) (sum float64) {
	first, second, terms, term := 1.0, 1.0, 0.0, 1.0
	for range steps {
		first, second = first*betas[0], second*betas[1]
		terms += term
		if term = term * betas[0] * betas[0]; term > 0 {
			term /= betas[1]
		}
		sum += (1 - betas[0]) / (1 - first) * math.Sqrt((1-second)/(1-betas[1])*terms)
	}
	return sum
}
