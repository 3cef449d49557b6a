package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro"
)

// Shapes returns how the model is cut, for package audit.
func (t *Trainer) Shapes() audit.Shapes {
	shapes := make(audit.Shapes, len(t.optimizer.layouts))
	for i, l := range t.optimizer.layouts {
		shapes[i] = l.Shape(int(t.optimizer.config.CompressionTopK))
	}
	return shapes
}

// Decay returns β: what is left of the momentum after a step of the run.
func (t *Trainer) Decay() float32 { return float32(t.optimizer.config.CompressionDecay) }

// Open shows chunks of the momentum of a step, which must be the newest that was trained. It
// waits for no gradient: it may be called from begun of Train, and has to be before the next
// result is made.
func (t *Trainer) Open(step uint32, chunks []uint32) (audit.Opening, error) {
	return t.optimizer.history.show(step, t.trainer, chunks)
}

// Settle says whether the result of a step, the newest that was trained, is held by others. One that is
// not is rolled back: the momentum is what it was before, to the bit, and the next result goes on from
// that. What is held stays, whether it counts or not. It has to be called before the next result is
// made, and may be from begun of Train. Where the momentum began afresh since there is nothing to do.
func (t *Trainer) Settle(step uint32, held bool) error {
	if t.optimizer.history == nil {
		return fmt.Errorf("settle step %d: %w: Options.Audited is not set", step, ErrUnsupported)
	}
	if held {
		return nil
	}
	return t.optimizer.rollback(step)
}

// CheckLight returns what is wrong with a claim, as far as it takes no gradient to know.
func (t *Trainer) CheckLight(c audit.Claim) audit.Fault {
	reference := t.reference(c.Header.Step, c.Header.Trainer)
	for _, opened := range c.Opening.Chunks {
		reference.Chunks = append(reference.Chunks, opened.Chunk)
	}
	return reference.Check(c).Fault
}

// reference is what is known of a step without its gradient.
func (t *Trainer) reference(step uint32, trainer [32]byte) *audit.Reference {
	return &audit.Reference{
		Shapes: t.Shapes(), Step: step, Trainer: trainer, Decay: t.Decay(), Signs: t.optimizer.config.Quantize1Bit,
		Longest: t.longest(step), Most: float64(t.lr(step)) * t.optimizer.config.ClipGradNorm,
	}
}

// Decode returns what Verify reads of a payload: a part of audit.Claim.
func (t *Trainer) Decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	if header, results, known := t.decoded.get(payload); known {
		return header, results, nil
	}
	return t.optimizer.decode(payload)
}

// Recompute computes the gradient that a trainer of an earlier step should have had of its batch, in
// the given chunks and in one of the types of Precisions. Model and momentum are afterwards what they were, to the bit.
//
// The weights that the step was trained from are worked out from the present ones, by taking
// back what was applied since: each is right to the last bit or two, which is far less than what
// gradients on different machines differ by. So nobody keeps old weights, and a step can be
// recomputed as long as the results since are kept.
func (t *Trainer) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	reference, err := t.recompute(ctx, x, batch)
	if err != nil {
		return nil, fmt.Errorf("recompute step %d of trainer %x: %w", x.Step, x.Trainer[:4], err)
	}
	return reference, nil
}

func (t *Trainer) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	if t.optimizer.config.Lookahead {
		return nil, fmt.Errorf("%w: lookahead", ErrUnsupported)
	}
	if err := checkChunks(t.Shapes(), x.Chunks); err != nil {
		return nil, err
	}
	if err := t.lock(ctx); err != nil {
		return nil, err
	}
	defer t.unlock()
	back, err := t.lookBack(x, t.unapply)
	defer back()
	if err != nil {
		return nil, err
	}
	reference := t.reference(x.Step, x.Trainer)
	reference.Chunks = slices.Clone(x.Chunks)
	err = t.gradientIn(ctx, x.Precision, batch, func(gradients [][]float32) error { return t.fill(reference, gradients) })
	return reference, err
}

// faint is by how much a tensor's gradient may be smaller than the model's and still be the measure of
// its chunks: of one that has nearly none, as the queries and keys of a layer that attends evenly,
// what remains is the noise of terms that cancelled.
const faint = 128

// fill takes the chunks out of the gradients.
func (t *Trainer) fill(reference *audit.Reference, gradients [][]float32) error {
	whole := norm(gradients)
	if math.IsNaN(whole) || math.IsInf(whole, 0) {
		return fmt.Errorf("%w: gradient norm is %v", ErrNotFinite, whole)
	}
	fill(reference, t.optimizer.layouts, gradients, float32(float64(t.lr(reference.Step))*clipScale(whole, t.optimizer.config.ClipGradNorm)))
	return nil
}

// fill takes the chunks of a reference out of what all tensors are updated by, times a factor.
func fill(reference *audit.Reference, layouts []distro.Layout, updates [][]float32, scale float32) {
	all, elements := 0, 0
	for _, l := range layouts {
		all += l.Elements()
	}
	least := norm(updates) / faint / math.Sqrt(float64(all)) // of an element
	lengths := make([]float64, len(updates))                 // of each tensor that has one of the chunks; else 0
	for _, chunk := range reference.Chunks {
		tensor, _, _ := reference.Shapes.Find(chunk)
		elements += layouts[tensor].ChunkSize()
	}
	room := make([]float32, elements)
	for _, chunk := range reference.Chunks {
		tensor, within, _ := reference.Shapes.Find(chunk)
		if lengths[tensor] == 0 {
			lengths[tensor] = norm(updates[tensor : tensor+1])
		}
		layout := layouts[tensor]
		update := layout.Chunk(updates[tensor], within, room[:layout.ChunkSize():layout.ChunkSize()])
		room = room[len(update):]
		for i := range update {
			update[i] *= scale
		}
		reference.Updates = append(reference.Updates, update)
		element := max(lengths[tensor]/math.Sqrt(float64(layout.Elements())), least)
		reference.Usual = append(reference.Usual, element*float64(scale)*math.Sqrt(float64(layout.ChunkSize())))
	}
}

// longest is the most that a momentum can measure after a step.
func (t *Trainer) longest(step uint32) float64 {
	c := t.optimizer.config
	const negligible = 1e-9
	sum, factor := 0.0, 1.0
	for s := step; s >= 1 && factor > negligible; s-- {
		sum += factor * float64(t.lr(s)) * c.ClipGradNorm
		factor *= c.CompressionDecay
	}
	return sum
}

// lookBack moves the model back to what it was before the results were applied, newest first, by what undoes
// those of a step, and returns what puts it back.
func (m *member) lookBack(x audit.Recomputation, unapply func(step uint32, results [][]codec.TensorResult) error) (back func(), err error) {
	back = func() {}
	if len(x.Applied) == 0 {
		if m.step != x.Weights {
			err = fmt.Errorf("%w: step %d was applied; results since step %d are needed", ErrStep, m.step, x.Weights)
		}
		return back, err
	}
	undone := make([][][]codec.TensorResult, len(x.Applied))
	for i, a := range x.Applied {
		if want := m.step - uint32(i); a.Step != want || a.Step <= x.Weights {
			return back, fmt.Errorf("%w: step %d among the applied, want %d, and later than %d", ErrStep, a.Step, want, x.Weights)
		}
		if undone[i], err = m.by.decodeAll(a.Step, a.Payloads); err != nil {
			return back, fmt.Errorf("applied in step %d: %w", a.Step, err)
		}
	}
	if last := x.Applied[len(x.Applied)-1].Step; last != x.Weights+1 {
		return back, fmt.Errorf("%w: results since step %d are needed, they begin with step %d", ErrStep, x.Weights, last)
	}
	back = m.keepWeights()
	for i, results := range undone {
		if err := unapply(x.Applied[i].Step, results); err != nil {
			return back, err
		}
	}
	m.changed()
	return back, nil
}

// checkChunks refuses chunks that the model has not.
func checkChunks(shapes audit.Shapes, chunks []uint32) error {
	for _, chunk := range chunks {
		if int64(chunk) >= int64(shapes.Chunks()) {
			return fmt.Errorf("%w: chunk %d of %d", ErrResult, chunk, shapes.Chunks())
		}
	}
	return nil
}

// unapply moves every weight back by what apply moved it.
func (t *Trainer) unapply(step uint32, results [][]codec.TensorResult) error {
	weights := t.weights()
	return t.optimizer.move(results, t.lr(step), func(i int, ofTensor []codec.TensorResult, p distro.ApplyParams) error {
		moved := make([]float32, len(weights[i])) // by −lr·sign
		factor := p.WeightFactor
		p.WeightFactor = 1
		if err := t.optimizer.kernel.DecodeApply(t.optimizer.layouts[i], ofTensor, moved, p); err != nil {
			return err
		}
		for j, w := range weights[i] {
			weights[i][j] = (w - moved[j]) / factor
		}
		return nil
	})
}
