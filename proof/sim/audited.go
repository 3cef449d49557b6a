package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/audit/toy"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// audited is a trainer in a run with audits. It appends a result of a toy optimizer to each of its
// results, which other members can audit like a real one. It implements env.Auditor.
type audited struct {
	*trainer
	toy.Part

	interrupted audit.Recomputation // without its applied results
	remaining   int64               // time that it still needs
}

func newAudited(t *trainer) *audited {
	return &audited{trainer: t, Part: toy.Part{Optimizer: toy.Optimizer{Trainer: t.process.machine.ID}}}
}

// fingerprint returns a hash of the weights.
func (a *audited) fingerprint() [32]byte {
	var b []byte
	for _, w := range a.model {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return sha256.Sum256(b)
}

// Train implements env.Trainer. A cheat uses the gradient of no data.
func (a *audited) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	gradient := toy.Gradient(a.fingerprint(), batch.Sequences)
	payload, loss, err := a.trainer.Train(ctx, step, batch, begun)
	if err != nil {
		return nil, 0, err
	}
	if a.process.machine.cheats(step) {
		for i := range gradient {
			gradient[i] = -gradient[i]
		}
	}
	shown, err := a.Optimizer.Step(step, batch.ID, gradient, batch.Hash())
	return append(payload, shown...), loss, err
}

// Verify implements env.Trainer.
func (a *audited) Verify(payload []byte, step uint32, batch assign.BatchID, owner [32]byte) error {
	if err := a.trainer.Verify(payload[:min(len(payload), model.ResultSize)], step, batch, owner); err != nil {
		return err
	}
	h, _, err := a.Decode(payload)
	if err == nil && (h.Step != step || h.BatchStart != batch.Start || h.BatchEnd != batch.End || h.Trainer != owner) {
		err = model.ErrInvalidResult
	}
	return err
}

// Apply implements env.Trainer.
func (a *audited) Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, own bool) error {
	err := a.trainer.Apply(ctx, step, payloads, votes, own)
	if err == nil {
		a.Past.Note(step, a.fingerprint())
	}
	return err
}

// Confirm implements env.Speculator.
func (a *audited) Confirm(step uint32) bool {
	confirmed := a.trainer.Confirm(step)
	if confirmed {
		a.Past.Note(step, a.fingerprint())
	}
	return confirmed
}

// Load implements env.Trainer.
func (a *audited) Load(ctx context.Context, s checkpoint.Snapshot) error {
	err := a.trainer.Load(ctx, s)
	if err == nil {
		a.Loaded(s.Step, a.fingerprint())
	}
	return err
}

// ResetOptimizer implements env.Trainer.
func (a *audited) ResetOptimizer(context.Context) error {
	a.Optimizer.Reset()
	return nil
}

// MaxResultSize implements env.Trainer.
func (a *audited) MaxResultSize() int { return 2*model.ResultSize + toy.MaxSize() }

// PartSize returns the size of a part of an opening, for computing transfer times.
func (a *audited) PartSize() int {
	if l := a.process.world.plan.Links; l != nil {
		return int(l.Opening / scenario.Parts)
	}
	return toy.MaxSize()
}

// Precisions implements env.Auditor.
func (*audited) Precisions() []audit.Precision { return []audit.Precision{audit.F32} }

// Decode implements env.Auditor.
func (a *audited) Decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	return a.Part.Decode(payload[min(len(payload), model.ResultSize):])
}

// continues reports whether a recomputation was interrupted, and no other began after it.
func (a *audited) continues(x audit.Recomputation) bool {
	i := a.interrupted
	return i.Step != 0 && i.Step == x.Step && i.Trainer == x.Trainer && i.Shaken == x.Shaken
}

// Recompute implements env.Auditor. It takes as long as a training step. On machines with a time for each sequence, it
// continues an interrupted recomputation.
func (a *audited) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	a.takeBack()
	p := a.process
	if !a.continues(x) {
		a.interrupted, a.remaining = audit.Recomputation{}, p.machine.computes(batch.ID)
	}
	begun := p.world.now
	if err := p.wait(ctx, begun+a.remaining); err != nil {
		if a.remaining -= p.world.now - begun; p.machine.sequence > 0 {
			a.interrupted = audit.Recomputation{Step: x.Step, Trainer: x.Trainer, Shaken: x.Shaken}
		}
		return nil, err
	}
	a.interrupted = audit.Recomputation{}
	gradient, err := a.Recomputed(x, batch.Sequences)
	if err != nil {
		return nil, err
	}
	p.world.recomputed++
	return toy.Reference(x.Step, x.Trainer, x.Chunks, gradient)
}
