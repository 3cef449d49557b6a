package dummy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/audit/toy"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/safetensors"
)

// Audited is a Trainer whose results can be audited. All members of a run must use the same kind.
type Audited struct {
	*Trainer
	toy.Part
}

// NewAudited returns the trainer of a run with audits.
func NewAudited(o Options) (*Audited, error) {
	t, err := New(o)
	if err != nil {
		return nil, err
	}
	a := &Audited{Trainer: t, Part: toy.Part{Optimizer: toy.Optimizer{Run: t.run, Trainer: o.TrainerID}}}
	a.Past.Note(t.step, t.fingerprint())
	return a, nil
}

// fingerprint returns the hash of the weights.
func (t *Trainer) fingerprint() [32]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	hash := sha256.New()
	for _, w := range t.weights {
		hash.Write(safetensors.FromFloat32s("", []int64{elements}, w).Data)
	}
	return [32]byte(hash.Sum(nil))
}

// Train does the same as Trainer.Train, with a gradient of a few numbers.
func (a *Audited) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	if err := a.wait(ctx); err != nil {
		return nil, 0, err
	}
	gradient := toy.Gradient(a.fingerprint(), batch.Sequences)
	if err := begun(ctx); err != nil {
		return nil, 0, err
	}
	payload, err := a.Optimizer.Step(step, batch.ID, gradient, batch.Hash())
	return payload, 10 / math.Sqrt(float64(step)+1), err
}

// Verify checks that a payload is a result of that step, batch and trainer.
func (a *Audited) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	h, _, err := toy.Decode(payload)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrResult, err)
	}
	if h.RunHash != a.run || h.Step != step || h.BatchStart != batch.Start || h.BatchEnd != batch.End || h.Trainer != trainer {
		return ErrResult
	}
	a.verified(payload, step, batch, trainer)
	return nil
}

// Apply moves every weight by the results times their votes, one after the other.
func (a *Audited) Apply(_ context.Context, step uint32, payloads [][]byte, votes []uint8, _ bool) error {
	hashes := make([][32]byte, len(payloads))
	for i, payload := range payloads {
		hashes[i] = sha256.Sum256(payload)
	}
	a.move(step, hashes, votes)
	a.Past.Note(step, a.fingerprint())
	return nil
}

// Load replaces the model and resets the momentum.
func (a *Audited) Load(ctx context.Context, s checkpoint.Snapshot) error {
	if err := a.Trainer.Load(ctx, s); err != nil {
		return err
	}
	a.Loaded(s.Step, a.fingerprint())
	return nil
}

// ResetOptimizer resets the momentum.
func (a *Audited) ResetOptimizer(context.Context) error {
	a.Optimizer.Reset()
	return nil
}

// MaxResultSize returns the maximum size of a result in bytes.
func (a *Audited) MaxResultSize() int { return toy.MaxSize() }

// Precisions returns F32, the only type.
func (*Audited) Precisions() []audit.Precision { return []audit.Precision{audit.F32} }

// Recompute returns the gradient of a batch for the model after the step x.Weights. It takes as
// long as a training.
func (a *Audited) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	if err := a.wait(ctx); err != nil {
		return nil, err
	}
	gradient, err := a.Recomputed(x, batch.Sequences)
	if err != nil {
		return nil, err
	}
	return toy.Reference(x.Step, x.Trainer, x.Chunks, gradient)
}
