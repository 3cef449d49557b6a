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
	"github.com/psyche-go/psyche/record/required"
)

// A round of local steps is audited as a step of DisTrO is (examine.go), with how far the weights came in the
// place of the gradient and the sums of what was not sent yet in that of the momentum. The running means
// begin as zeros in each round then: so where a member's steps lead follows from the common weights and
// from its batch alone, and whoever has these can make the same steps.

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

// valued returns the values that the levels of a step's result stand for.
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

// tookBack notes that the result of a step was rolled back.
func (t *LocalTrainer) tookBack(step uint32) { delete(t.sent, step) }

// reference is what is known of a step by the rules alone.
func (t *LocalTrainer) reference(step uint32, trainer [32]byte) *audit.Reference {
	return &audit.Reference{
		Shapes: t.Shapes(), Step: step, Trainer: trainer, Decay: float32(t.config.ErrorDecay), Coarse: true,
		Longest: math.Inf(1), Most: math.Inf(1),
	}
}

// recompute makes the steps of an earlier round that a trainer should have made on its batch: how far they lead
// stands for the gradient. Beside a copy of the weights it needs room for a tensor and for the results of a round: where the
// round began is worked out again where it is asked for.
func (t *LocalTrainer) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) error {
	if x.Precision != precisionOf(t.computes) {
		return fmt.Errorf("%w: steps in %v", errUnsupported, x.Precision)
	}
	if err := t.checkApplied(x); err != nil {
		return err
	}
	defer t.keepWeights()()
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

// replay is a round that is made again, as far as it came.
type replay struct {
	x     audit.Recomputation // without what was applied in one that was stopped
	batch [32]byte            // the hash of its tokens: those of another server may be others
	next  int                 // step to be made

	reference *audit.Reference
	begun     [][]float32 // weights of the chunks that are opened, where the round began
	ended     [][]float32 // and where its steps led; nil: not all are made

	// Of one that was stopped, what the next step goes on from.
	weights [][]float32
	means   [][]float32
	updates uint64
}

// isOf reports whether a replay is one that is asked for, and of the same tokens.
func (r *replay) isOf(x audit.Recomputation, batch [32]byte) bool {
	return r != nil && r.x.Step == x.Step && r.x.Trainer == x.Trainer && r.batch == batch && r.x.Shaken == x.Shaken && slices.Equal(r.x.Chunks, x.Chunks)
}

// again makes the model what it was when a round began, or, where the same was stopped, what it was then. The caller puts
// it back.
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

// begin makes the model what it was when the round of a replay began: the weights that are kept, taken back by what was
// applied since.
func (t *LocalTrainer) begin(r *replay) error {
	copyAll(t.weights(), t.canonical)
	err := t.takeBack(r.x, t.weights())
	t.changed()
	t.inner.forget()
	r.next = 0
	return err
}

// takeBack takes values of all weights back by what was applied since a round. The results are read one round at a time: those of
// some rounds may take more memory than the model.
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

// opened returns the present weights of the chunks that are opened.
func (t *LocalTrainer) opened(r *replay) (chunks [][]float32) {
	weights := t.weights()
	for _, c := range r.reference.Chunks {
		tensor, within, _ := r.reference.Shapes.Find(c)
		chunks = append(chunks, t.layouts[tensor].Chunk(weights[tensor], within, nil))
	}
	return chunks
}

// goOn makes the steps of a replay that are not made yet: those from shaken weights after the others.
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

// led fills in a replay's reference by how far the steps led. The weights are about that afterwards.
func (t *LocalTrainer) led(r *replay) error {
	r.ended = t.opened(r)
	weights := t.weights()
	for i, w := range weights {
		for j := range w {
			w[j] = t.canonical[i][j] - w[j]
		}
	}
	if err := t.takeBack(r.x, weights); err != nil {
		return err
	}
	r.reference.Limits, r.reference.Shaky = audit.LocalLimits, true
	t.bound(r.reference, r.begun)
	fill(r.reference, t.layouts, weights, 1)
	for n, update := range r.reference.Updates { // from where its steps began, which more rounds taken back may miss by a bit
		for j := range update {
			update[j] = r.begun[n][j] - r.ended[n][j]
		}
	}
	return nil
}

// pause keeps what a replay came to, so that who has little time at once can make it bit by bit. Of a model for
// which there is no room for copies it keeps nothing.
func (t *LocalTrainer) pause(r *replay) {
	if 4*t.Elements() > required.MaxCopied {
		return
	}
	r.weights, r.means, r.updates = cloneAll(t.weights()), cloneAll(t.inner.all()), t.inner.updates
	r.x.Applied, t.paused = nil, r
}

func cloneAll(values [][]float32) [][]float32 {
	all := make([][]float32, len(values))
	for i, v := range values {
		all[i] = slices.Clone(v)
	}
	return all
}

func copyAll(to, from [][]float32) {
	for i, v := range from {
		copy(to[i], v)
	}
}

// shake changes weights in their last bits, to both sides in turns that no tensor's shape goes along with.
func shake(weights []float32) {
	const off = 1 << 4 // in the last place
	state := uint32(1)
	for i, w := range weights {
		state = state*1664525 + 1013904223
		bits := math.Float32bits(w)
		if state>>31 == 0 {
			bits += off
		} else if bits<<1 >= 2*off { // as far as the sign is not changed
			bits -= off
		}
		weights[i] = math.Float32frombits(bits)
	}
}

// shaking is how many times as far as shaken weights led elsewhere honest trainers may be apart. What differs for
// one of them is a sample of what may.
const shaking = 8

// blur adds how far the present weights are from where steps led that began with others: in each chunk, and at
// least as much of its update as in all of them together, since it is chance in which of them more differs.
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

// distance is the L2 norm of the difference.
func distance(a, b []float32) float64 {
	squares := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		squares += d * d
	}
	return math.Sqrt(squares)
}

// length is the L2 norm.
func length(values []float64) float64 {
	squares := 0.0
	for _, v := range values {
		squares += v * v
	}
	return math.Sqrt(squares)
}

// unseen is the part of a weight that its rounding may hide of how far it came: weights that are worked out are
// off by a bit or two, and each step rounds.
const unseen = 1.0 / (1 << 21)

// bound fills in how far weights can have come in the chunks of a reference from what these were when the round
// began.
func (t *LocalTrainer) bound(reference *audit.Reference, begun [][]float32) {
	widest, elements, largest := 0.0, 0, 0
	for _, chunk := range begun {
		for _, w := range chunk {
			widest = max(widest, math.Abs(float64(w)))
		}
		elements, largest = elements+len(chunk), max(largest, len(chunk))
		reference.Blur = append(reference.Blur, unseen*norm([][]float32{chunk}))
	}
	// A power of two, so that auditors whose weights differ by a bit hold it for the same; twice as much at
	// least, as weights were others in rounds before, and become others in this one.
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

// longest is the most that the steps of a round come to in a chunk, as a root mean square and in learning rates, weight
// decay aside: see quotients, and of Muon, where no singular value is above muonLargest, so that a chunk of r × c is no
// longer than that times the root of the smaller of the two.
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

// farthest is the most by which the steps of a round can move the weights of a chunk, as a root mean square, where each
// is at most half of weight. A step rounds each twice, by half a unit in its last place at most: that is more than the step itself
// where the rate has become small.
func (t *LocalTrainer) farthest(step uint32, weight float64) float64 {
	const rounded = 1.0 / (1 << 25)
	steps := float64(t.config.InnerSteps)
	return float64(t.lr(step))*(t.quotients+steps*t.config.WeightDecay*weight) + steps*rounded*weight
}

// quotients is the most that the quotients of AdamW's two means come to in so many steps from zeros, by the
// inequality of Cauchy and Schwarz: of each step it is
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
