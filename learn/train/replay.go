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

// Precisions returns the type that rounds are trained in: in others the same steps lead elsewhere.
func (t *LocalTrainer) Precisions() []audit.Precision {
	return []audit.Precision{precisionOf(t.computes)}
}

// Decode returns what Verify reads of a payload, with the values that its levels stand for: a part of audit.Claim.
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
// stands for the gradient. Beside a copy of the weights it needs room for two tensors: where the round began is worked out
// again where it is asked for.
func (t *LocalTrainer) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) error {
	if x.Precision != precisionOf(t.computes) {
		return fmt.Errorf("%w: steps in %v", ErrUnsupported, x.Precision)
	}
	applied, err := t.readApplied(x)
	if err != nil {
		return err
	}
	defer t.keepWeights()()
	r, err := t.again(x, applied, batch.Hash(), reference)
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
	x       audit.Recomputation
	applied [][][]codec.TensorResult // what x.Applied says
	batch   [32]byte                 // the hash of its tokens: those of another server may be others
	next    int                      // step to be made

	// Of what is opened, each chunk where the round began and where its steps led; nil: not all are made.
	reference    *audit.Reference
	begun, ended [][]float32

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
func (t *LocalTrainer) again(x audit.Recomputation, applied [][][]codec.TensorResult, batch [32]byte, reference *audit.Reference) (*replay, error) {
	if r := t.paused; r.isOf(x, batch) {
		t.paused = nil
		copyAll(t.weights(), r.weights)
		copyAll(t.inner.all(), r.means)
		t.inner.updates = r.updates
		r.x, r.applied, r.weights, r.means = x, applied, nil, nil // more may have been applied since
		t.changed()
		return r, nil
	}
	r := &replay{x: x, applied: applied, batch: batch, reference: reference}
	return r, t.begin(r, func(weights, begun []float32) { copy(weights, begun) })
}

// begin has the steps of a replay begin with what set makes of the weights that the round began with.
func (t *LocalTrainer) begin(r *replay, set func(weights, begun []float32)) error {
	weights := t.weights()
	err := t.eachBegun(r, func(i int, begun []float32) { set(weights[i], begun) })
	t.changed()
	t.inner.forget()
	r.next = 0
	return err
}

// eachBegun calls f with what each tensor was when the round began: the weights that are kept, taken back by what
// was applied since. They are f's until it returns.
func (t *LocalTrainer) eachBegun(r *replay, f func(i int, begun []float32)) error {
	largest := 0
	for _, w := range t.canonical {
		largest = max(largest, len(w))
	}
	begun, moved := make([]float32, largest), make([]float32, largest)
	for i, w := range t.canonical {
		begun, moved := begun[:copy(begun, w)], moved[:len(w)]
		for n, results := range r.applied {
			clear(moved)
			if err := localsteps.Apply(t.kernel, t.layouts[i], ofTensor(results, i), moved, t.applyParams(r.x.Applied[n].Step)); err != nil {
				return fmt.Errorf("take back step %d, tensor %d: %w", r.x.Applied[n].Step, i, err)
			}
			for j := range moved {
				begun[j] -= moved[j]
			}
		}
		f(i, begun)
	}
	begun, moved = nil, nil
	t.giveBack()
	return nil
}

// goOn makes the steps of a replay that are not made yet: those from shaken weights after the others.
func (t *LocalTrainer) goOn(ctx context.Context, r *replay, batch data.Batch) (err error) {
	if r.ended == nil {
		if _, r.next, err = t.steps(ctx, r.x.Step, batch, r.next, false); err == nil {
			err = t.led(r)
		}
		if err == nil && r.x.Shaken {
			err = t.begin(r, shake)
		}
	}
	if err == nil && r.x.Shaken {
		_, r.next, err = t.steps(ctx, r.x.Step, batch, r.next, false)
	}
	return err
}

// led fills in a replay's reference by how far the steps led. The weights are that afterwards.
func (t *LocalTrainer) led(r *replay) error {
	chunks := r.reference.Chunks
	r.begun, r.ended = make([][]float32, len(chunks)), make([][]float32, len(chunks))
	weights := t.weights()
	err := t.eachBegun(r, func(i int, begun []float32) {
		for n, c := range chunks {
			if tensor, within, _ := r.reference.Shapes.Find(c); tensor == i {
				r.begun[n], r.ended[n] = t.layouts[i].Chunk(begun, within, nil), t.layouts[i].Chunk(weights[i], within, nil)
			}
		}
		for j, w := range weights[i] {
			weights[i][j] = begun[j] - w
		}
	})
	if err != nil {
		return err
	}
	r.reference.Limits, r.reference.Shaky = audit.LocalLimits, true
	t.bound(r.reference, r.begun)
	fill(r.reference, t.layouts, weights, 1)
	return nil
}

// pause keeps what a replay came to, so that who has little time at once can make it bit by bit. Of a model for
// which there is no room for copies it keeps nothing.
func (t *LocalTrainer) pause(r *replay) {
	if 4*t.Elements() > required.MaxCopied {
		return
	}
	r.weights, r.means, r.updates = cloneAll(t.weights()), cloneAll(t.inner.all()), t.inner.updates
	t.paused = r
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

// shake makes of weights others that differ in their last bits, to both sides in turns that no tensor's shape
// goes along with.
func shake(to, weights []float32) {
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
		to[i] = math.Float32frombits(bits)
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
// is at most so large.
func (t *LocalTrainer) farthest(step uint32, weight float64) float64 {
	return float64(t.lr(step)) * (t.quotients + float64(t.config.InnerSteps)*t.config.WeightDecay*weight)
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
