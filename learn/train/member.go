package train

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/train/schedule"
)

// member is the common part of a run's trainers with any optimizer: the model, the learning rate,
// and the decoding of results.
type member struct {
	*replica
	schedule schedule.Schedule
	cold     atomic.Pointer[schedule.ColdStart]
	run      [32]byte
	trainer  [32]byte
	by       exchanged
	shapes   audit.Shapes                                                              // how the model is cut into chunks
	history  *history                                                                  // nil: no audits
	decode   func(payload []byte) (codec.Header, []codec.TensorResult, error)          // strict; may be called concurrently with all other methods
	decoded  decodedResults                                                            // results that Verify has decoded
	onlyF32  bool                                                                      // Options.OnlyF32
	applied  bool                                                                      // whether step was finished by Apply
	report   func(Timing)                                                              // nil: no reports
	verified func(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) // may be nil
}

// exchanged is the optimizer's part of decoding, applying and giving back results. All methods
// except decodeAll are called under the lock.
type exchanged interface {
	decodeAll(step uint32, payloads [][]byte) ([][]codec.TensorResult, error)
	move(ctx context.Context, step uint32, results [][]codec.TensorResult) error
	settleOwn(step uint32, counted bool) error
	forget()        // resets the optimizer state
	foresees() bool // whether training does not use the copy that keep made
	auditing
}

func newMember(r *replica, rates schedule.Schedule, o Options, shapes audit.Shapes, h *history, decode func([]byte) (codec.Header, []codec.TensorResult, error), by exchanged) *member {
	return &member{
		replica: r, by: by, shapes: shapes, history: h, schedule: rates, run: sha256.Sum256([]byte(o.RunID)), trainer: o.TrainerID, decode: decode,
		report: o.Timed, verified: o.Verified, onlyF32: o.OnlyF32, decoded: decodedResults{room: maxDecoded},
	}
}

// checkNext refuses a step that is not after the newest applied one.
func (m *member) checkNext(step uint32) error {
	if m.applied && step <= m.step {
		return fmt.Errorf("%w: step %d was applied before", errStep, m.step)
	}
	return nil
}

// lr returns the learning rate of a step, for its gradient and its results.
func (m *member) lr(step uint32) float32 {
	var cold schedule.ColdStart
	if set := m.cold.Load(); set != nil {
		cold = *set
	}
	return cold.LR(m.schedule, step)
}

// LR returns the learning rate of a step.
func (m *member) LR(ctx context.Context, step uint32) (float32, error) {
	if err := m.lock(ctx); err != nil {
		return 0, err
	}
	defer m.unlock()
	return m.lr(step), nil
}

// Verify reports whether payload is, byte for byte, a possible result of the trainer for that step
// and batch. Errors wrap ErrResult. It needs no engine. It keeps the decoded result for Apply, in
// bounded memory.
func (m *member) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	header, tensors, err := m.decode(payload)
	if err != nil {
		return err
	}
	want := codec.Header{RunHash: m.run, Step: step, BatchStart: batch.Start, BatchEnd: batch.End, Trainer: trainer}
	if err := compareHeaders(header, want); err != nil {
		return err
	}
	if m.onlyF32 && header.Precision == audit.BF16.Code() {
		return fmt.Errorf("%w: computed in bf16, which members of this run cannot audit", ErrResult)
	}
	m.decoded.put(payload, header, tensors)
	if m.verified != nil {
		m.verified(payload, step, batch, trainer)
	}
	return nil
}

func compareHeaders(header, want codec.Header) error {
	switch {
	case header.RunHash != want.RunHash:
		return fmt.Errorf("%w: belongs to another run", ErrResult)
	case header.Step != want.Step:
		return fmt.Errorf("%w: belongs to step %d, want %d", ErrResult, header.Step, want.Step)
	case header.BatchStart != want.BatchStart || header.BatchEnd != want.BatchEnd:
		return fmt.Errorf("%w: belongs to batch [%d,%d), want [%d,%d)",
			ErrResult, header.BatchStart, header.BatchEnd, want.BatchStart, want.BatchEnd)
	case header.Trainer != want.Trainer:
		return fmt.Errorf("%w: belongs to trainer %x, want %x", ErrResult, header.Trainer[:4], want.Trainer[:4])
	}
	return nil
}

// decodeAll decodes the results of a step, which are in ascending order of their batches.
func (m *member) decodeAll(step uint32, payloads [][]byte) ([][]codec.TensorResult, error) {
	results := make([][]codec.TensorResult, len(payloads))
	end := uint64(0)
	for i, payload := range payloads {
		header, tensors, known := m.decoded.get(payload)
		if !known {
			var err error
			if header, tensors, err = m.decode(payload); err != nil {
				return nil, fmt.Errorf("result %d: %w", i, err)
			}
		}
		want := header
		want.RunHash, want.Step = m.run, step
		if err := compareHeaders(header, want); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
		if header.BatchStart < end {
			return nil, fmt.Errorf("result %d: %w: batch [%d,%d) does not come after the one before", i, ErrResult, header.BatchStart, header.BatchEnd)
		}
		results[i], end = tensors, header.BatchEnd
	}
	return results, nil
}

// SetColdStart scales the learning rate from 0 at step start to its full value steps later. With 0
// steps it ends the scaling. All members of a run must use the same values.
func (m *member) SetColdStart(ctx context.Context, start, steps uint32) error {
	if err := m.lock(ctx); err != nil {
		return fmt.Errorf("set cold start: %w", err)
	}
	defer m.unlock()
	m.cold.Store(&schedule.ColdStart{Start: start, Steps: steps})
	return nil
}

// Apply changes the weights by the counted results of a step, in ascending order of their batches.
// Without results, the weights still decay under DisTrO, and do not change under local steps.
// ownCounted reports whether this trainer's result is among them. If not, it is added back to the
// momentum, except in runs with audits, see Trainer.Settle.
//
// Steps are applied in ascending order, each once. If a payload is invalid or out of order, Apply
// returns an error that wraps ErrResult, and nothing has changed.
func (m *member) Apply(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) error {
	if err := m.apply(ctx, step, payloads, ownCounted); err != nil {
		return fmt.Errorf("apply step %d: %w", step, err)
	}
	return nil
}

func (m *member) apply(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) error {
	if m.isForeseen(step, payloads, ownCounted) {
		if err := m.lock(ctx); err != nil {
			return err
		}
		m.unlock()
		return nil
	}
	begun := time.Now()
	results, err := m.by.decodeAll(step, payloads)
	if err != nil {
		return err
	}
	m.timed(step, partDecode, begun)
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	if err := m.checkNext(step); err != nil {
		return err
	}
	if err := m.by.move(ctx, step, results); err != nil {
		return err
	}
	return m.settled(step, ownCounted)
}

// settled does the work after the weights were moved by the results of a step.
func (m *member) settled(step uint32, ownCounted bool) error {
	m.step, m.applied = step, true
	m.decoded.forget(step)
	return m.by.settleOwn(step, ownCounted)
}

// Load replaces the model by another snapshot of it and resets the optimizer. For a snapshot of
// another model it returns an error that wraps errModel, and nothing has changed.
func (m *member) Load(ctx context.Context, s checkpoint.Snapshot) error {
	if err := m.lock(ctx); err != nil {
		return fmt.Errorf("load model: %w", err)
	}
	defer m.unlock()
	if err := m.load(ctx, s); err != nil {
		return fmt.Errorf("load model: %w", err)
	}
	m.applied = false
	m.decoded.forgetAll()
	m.by.forget()
	return nil
}

// ResetOptimizer resets the optimizer, as a cold start requires.
func (m *member) ResetOptimizer(ctx context.Context) error {
	if err := m.lock(ctx); err != nil {
		return fmt.Errorf("reset optimizer: %w", err)
	}
	defer m.unlock()
	m.by.forget()
	return nil
}
