package clienttest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/audit/toy"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
)

// Audited is a Trainer whose results can be audited. It implements env.Auditor.
type Audited struct {
	*Trainer
	Types []audit.Precision // types that it can compute in, its default first; nil: f32
	// Cheat replaces the gradient, for example by the gradient of another batch or model. May be
	// nil.
	Cheat func(step uint32, batch data.Batch, gradient []float32) []float32
	// RecomputeTime is the duration of a recomputation; 0: the duration of a training.
	RecomputeTime time.Duration
	// Restarts makes an interrupted recomputation begin again. Otherwise it continues.
	Restarts bool
	// Forge changes the header of a result. May be nil.
	Forge func(h *codec.Header)
	// Recomputing is called when a recomputation begins. May be nil.
	Recomputing func(x audit.Recomputation)
	// Guess replaces the gradient that a recomputation returns. May be nil.
	Guess func(x audit.Recomputation, gradient []float32) []float32
	// PartBytes is the size of one part of an opening, as a real model would have it; 0: the size
	// in the small model of this trainer.
	PartBytes int

	toy.Part
	kept atomic.Pointer[unfinished]
}

// unfinished is an interrupted recomputation.
type unfinished struct {
	step    uint32
	trainer [32]byte
	took    time.Duration // so far
}

// Audit wraps a trainer as the trainer of a run with audits.
func Audit(t *Trainer) *Audited {
	return &Audited{Trainer: t, Part: toy.Part{Optimizer: toy.Optimizer{Trainer: t.ID}}}
}

func (a *Audited) fingerprint() [32]byte {
	var b []byte
	for _, w := range a.Weights() {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return sha256.Sum256(b)
}

// in returns the gradient that a trainer would compute in the number type p. In bf16, every second
// number is a quarter too large.
func in(p audit.Precision, gradient []float32) []float32 {
	if p == audit.BF16 {
		for i := range gradient {
			if i%2 == 1 {
				gradient[i] *= 1.25
			}
		}
	}
	return gradient
}

// Train implements env.Trainer.
func (a *Audited) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	_, loss, err := a.Trainer.Train(ctx, step, batch, begun)
	if err != nil {
		return nil, 0, err
	}
	gradient := in(a.Precisions()[0], toy.Gradient(a.fingerprint(), batch.Sequences))
	if a.Cheat != nil {
		gradient = a.Cheat(step, batch, gradient)
	}
	payload, err := a.Optimizer.Step(step, batch.ID, gradient, batch.Hash())
	if err == nil && a.Forge != nil {
		payload, err = toy.Forge(payload, a.Forge)
	}
	return payload, loss, err
}

// Verify implements env.Trainer.
func (a *Audited) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	h, _, err := toy.Decode(payload)
	if err != nil || h.Step != step || h.BatchStart != batch.Start || h.BatchEnd != batch.End || h.Trainer != trainer {
		return ErrFake
	}
	return nil
}

// Apply implements env.Trainer.
func (a *Audited) Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, own bool) error {
	if err := a.Trainer.Apply(ctx, step, hashesOf(payloads), votes, own); err != nil {
		return err
	}
	a.Past.Note(step, a.fingerprint())
	return nil
}

func hashesOf(payloads [][]byte) [][]byte {
	hashes := make([][]byte, len(payloads))
	for i, payload := range payloads {
		hash := sha256.Sum256(payload)
		hashes[i] = hash[:]
	}
	return hashes
}

// Speculate implements env.Speculator.
func (a *Audited) Speculate(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, own bool) (bool, error) {
	return a.Trainer.Speculate(ctx, step, hashesOf(payloads), votes, own)
}

// Confirm implements env.Speculator.
func (a *Audited) Confirm(step uint32) bool {
	confirmed := a.Trainer.Confirm(step)
	if confirmed {
		a.Past.Note(step, a.fingerprint())
	}
	return confirmed
}

// Load implements env.Trainer.
func (a *Audited) Load(ctx context.Context, s checkpoint.Snapshot) error {
	if err := a.Trainer.Load(ctx, s); err != nil {
		return err
	}
	a.Loaded(s.Step, a.fingerprint())
	return nil
}

// ResetOptimizer implements env.Trainer.
func (a *Audited) ResetOptimizer(ctx context.Context) error {
	a.Optimizer.Reset()
	return a.Trainer.ResetOptimizer(ctx)
}

// LoadOptimizer implements env.OptimizerSaver. It does not restore the saved state.
func (a *Audited) LoadOptimizer(context.Context, string) error {
	a.Optimizer.Reset()
	return nil
}

// MaxResultSize implements env.Trainer.
func (a *Audited) MaxResultSize() int { return toy.MaxSize() }

// Precisions implements env.Auditor.
func (a *Audited) Precisions() []audit.Precision {
	if a.Types == nil {
		return []audit.Precision{audit.F32}
	}
	return a.Types
}

// Recompute implements env.Auditor.
func (a *Audited) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	defer a.exclusive()()
	if a.Recomputing != nil {
		a.Recomputing(x)
	}
	now, begun := unfinished{step: x.Step, trainer: x.Trainer}, time.Now()
	if kept := a.kept.Load(); kept != nil && kept.step == x.Step && kept.trainer == x.Trainer {
		now = *kept
		a.kept.Store(nil)
	}
	if pause.For(ctx, cmp.Or(a.RecomputeTime, a.Duration)-now.took) != nil {
		if now.took += time.Since(begun); !a.Restarts {
			a.kept.Store(&now)
		}
		return nil, ctx.Err()
	}
	gradient, err := a.Recomputed(x, batch.Sequences)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFake, err)
	}
	gradient = in(x.Precision, gradient)
	if a.Guess != nil {
		gradient = a.Guess(x, gradient)
	}
	return toy.Reference(x.Step, x.Trainer, x.Chunks, gradient)
}

// Abandon implements env.Auditor.
func (a *Audited) Abandon(step uint32, trainer [32]byte) {
	if kept := a.kept.Load(); kept != nil && kept.step == step && kept.trainer == trainer {
		a.kept.CompareAndSwap(kept, nil)
	}
}

// PartSize returns the size in bytes of a part of an opening, from which clients derive timeouts.
func (a *Audited) PartSize() int {
	if a.PartBytes > 0 {
		return a.PartBytes
	}
	return audit.MaxOpeningSize(a.Shapes(), 1)
}
