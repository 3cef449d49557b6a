package train

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro"
)

// reference returns a step's reference without its gradient.
func (t *Trainer) reference(step uint32, trainer [32]byte) *audit.Reference {
	return &audit.Reference{
		Shapes: t.Shapes(), Step: step, Trainer: trainer, Decay: float32(t.optimizer.config.CompressionDecay), Signs: t.optimizer.config.Quantize1Bit,
		Longest: t.longest(step), Most: float64(t.lr(step)) * t.optimizer.config.ClipGradNorm,
	}
}

// Decode decodes the part of a payload that Verify checks: a part of audit.Claim.
func (t *Trainer) Decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	if header, results, known := t.decoded.get(payload); known {
		return header, results, nil
	}
	return t.optimizer.decode(payload)
}

// tookBack handles the rollback of a step's result.
func (t *Trainer) tookBack(step uint32) {
	delete(t.optimizer.sent, step)
	t.optimizer.newest = t.history.newest()
}

// recompute computes the gradient of a step.
func (t *Trainer) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) (err error) {
	if t.optimizer.config.Lookahead {
		return fmt.Errorf("%w: lookahead", errUnsupported)
	}
	back, err := t.lookBack(x)
	defer func() { err = errors.Join(err, back()) }()
	if err != nil {
		return err
	}
	reference.Limits = x.Precision.Limits()
	return t.gradientIn(ctx, x.Precision, batch, func(gradients [][]float32) error { return t.fill(reference, gradients) })
}

// faint is the factor by which a tensor's gradient may be smaller than the model's and still be the
// measure of its chunks. If a tensor has almost no gradient, as the queries and keys of a layer
// that attends evenly, only the noise of cancelled terms remains.
const faint = 128

// fill copies the chunks from the gradients.
func (t *Trainer) fill(reference *audit.Reference, gradients [][]float32) error {
	whole := norm(gradients)
	if math.IsNaN(whole) || math.IsInf(whole, 0) {
		return fmt.Errorf("%w: gradient norm is %v", errNotFinite, whole)
	}
	fill(reference, t.optimizer.layouts, gradients, float32(float64(t.lr(reference.Step))*clipScale(whole, t.optimizer.config.ClipGradNorm)))
	return nil
}

// fill copies the chunks of a reference from the updates of all tensors, times a factor.
func fill(reference *audit.Reference, layouts []distro.Layout, updates [][]float32, scale float32) {
	all, elements := 0, 0
	for _, l := range layouts {
		all += l.Elements()
	}
	least := norm(updates) / faint / math.Sqrt(float64(all)) // per element
	lengths := make([]float64, len(updates))                 // of each tensor with one of the chunks; else 0
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

// longest returns the maximum length of a momentum after a step.
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
