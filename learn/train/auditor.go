package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
)

// auditor opens the results of a trainer and recomputes the results of other trainers.
type auditor struct {
	replica    *replica
	reader     *reader
	examiner   examiner
	keeper     *keeper
	chunks     audit.Shapes // how the model is cut into chunks
	history    *history     // nil: no audits
	key        [32]byte     // public key of the trainer
	precisions []audit.Precision
}

// examiner is the part of audits that depends on the optimizer.
type examiner interface {
	// values returns the values that the coefficients of a step's result stand for. It may be
	// called concurrently with all other methods.
	values(step uint32, results []codec.TensorResult) ([]codec.TensorResult, error)
	// reference returns the part of a step's reference that the optimizer and its settings
	// determine, without a gradient. It may be called concurrently with all other methods.
	reference(step uint32, trainer [32]byte) *audit.Reference
	// recompute is called under the lock. It continues r, and fills in what the gradient of a step adds
	// to the chunks of r's reference. Model and optimizer are unchanged afterwards, bit for bit. If
	// ctx is cancelled, it leaves its progress in r, if that can be kept.
	recompute(ctx context.Context, r *recomputing, batch data.Batch) error
	// rollBack rolls back the result of the newest trained step.
	rollBack(step uint32) error
}

// Shapes returns how the model is cut into chunks, for package audit.
func (a *auditor) Shapes() audit.Shapes { return a.chunks }

// Precisions returns the types in which Recompute computes, the training type first. If the CPU
// cannot compute in the second type, Recompute returns an error. Local steps have one type only:
// in other types the same steps have different results.
func (a *auditor) Precisions() []audit.Precision { return slices.Clone(a.precisions) }

// Decode decodes the part of a payload that Verify checks: a part of audit.Claim. The result
// contains the values for which the levels of local steps stand.
func (a *auditor) Decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	header, results, err := a.reader.read(payload)
	if err != nil {
		return codec.Header{}, nil, err
	}
	values, err := a.examiner.values(header.Step, results)
	return header, values, err
}

// Open opens chunks of the momentum of a step, which must be the newest trained step. It does not
// wait for a gradient. The function begun that Train calls may call it. It must be called before
// the next result is made.
func (a *auditor) Open(step uint32, chunks []uint32) (audit.Opening, error) {
	return a.history.show(step, a.key, chunks)
}

// SetAttested sets whether the result of a step, the newest trained step, is attested: a quorum of
// witnesses reported it. If it is not, it is rolled back: the momentum is restored, bit for bit,
// and the next result continues from the restored momentum. An attested result stays, whether it
// counts or not. SetAttested must be called before the next result is made. The function begun that
// Train calls may call it. SetAttested does nothing if the momentum was reset since.
func (a *auditor) SetAttested(step uint32, held bool) error {
	if a.history == nil {
		return fmt.Errorf("set whether step %d is attested: %w: Options.Audited is not set", step, errUnsupported)
	}
	if held {
		return nil
	}
	return a.examiner.rollBack(step)
}

// CheckLight returns the fault of a claim if one can be found without a gradient.
func (a *auditor) CheckLight(c audit.Claim) audit.Fault {
	reference := a.reference(c.Header.Step, c.Header.Trainer)
	for _, opened := range c.Opening.Chunks {
		reference.Chunks = append(reference.Chunks, opened.Chunk)
	}
	return reference.Check(c).Fault
}

func (a *auditor) reference(step uint32, trainer [32]byte) *audit.Reference {
	reference := a.examiner.reference(step, trainer)
	reference.Shapes, reference.Step, reference.Trainer = a.chunks, step, trainer
	return reference
}

// Recompute recomputes the gradient that a trainer of an earlier step should have had for its
// batch, in the given chunks and in one of the types of Precisions. Model and momentum are
// unchanged afterwards, bit for bit.
//
// The weights that the step was trained from are computed from the current ones, by undoing the
// results applied since. Each is right to the last bit or two, which is far less than the
// differences between gradients on different machines. Therefore no old weights are kept, and a
// step can be recomputed as long as the results since then are kept.
//
// If ctx is cancelled, Recompute returns before the next micro-batch or local step. The trainer keeps the
// progress of the newest recomputation that was interrupted if there is memory. The same call later
// continues from there, and returns the bits that it would have returned without the interruption, except
// that weights from which more results were undone may differ in the last bit or two.
func (a *auditor) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	reference, err := a.recompute(ctx, x, batch)
	if err != nil {
		return nil, fmt.Errorf("recompute step %d of trainer %x: %w", x.Step, x.Trainer[:4], err)
	}
	return reference, nil
}

func (a *auditor) recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	if err := checkChunks(a.chunks, x.Chunks); err != nil {
		return nil, err
	}
	if err := a.replica.lock(ctx); err != nil {
		return nil, err
	}
	defer a.replica.unlock()
	r := a.keeper.take(x, batch.Hash())
	if r.reference == nil {
		r.reference = a.reference(x.Step, x.Trainer)
		r.reference.Chunks = slices.Clone(x.Chunks)
	}
	if err := a.examiner.recompute(ctx, r, batch); err != nil {
		if interrupted(ctx, err) {
			a.keeper.keep(r)
		}
		return nil, err
	}
	a.replica.giveBack()
	return r.reference, nil
}

// Abandon drops the progress of an interrupted recomputation. It never waits.
func (a *auditor) Abandon(step uint32, trainer [32]byte) {
	a.keeper.drop(func(r *recomputing) bool { return r.x.Step == step && r.x.Trainer == trainer })
}

// checkApplied refuses x.Applied unless it contains the results of all steps applied since the
// recomputed step, newest first. newest is the newest applied step.
func checkApplied(x audit.Recomputation, newest uint32) error {
	if len(x.Applied) == 0 {
		if newest != x.Weights {
			return fmt.Errorf("%w: step %d was applied; results since step %d are needed", errStep, newest, x.Weights)
		}
		return nil
	}
	for i, a := range x.Applied {
		if want := newest - uint32(i); a.Step != want || a.Step <= x.Weights {
			return fmt.Errorf("%w: step %d among the applied, want %d, and later than %d", errStep, a.Step, want, x.Weights)
		}
	}
	if last := x.Applied[len(x.Applied)-1].Step; last != x.Weights+1 {
		return fmt.Errorf("%w: results since step %d are needed, they begin with step %d", errStep, x.Weights, last)
	}
	return nil
}

// checkChunks refuses chunks that the model does not have.
func checkChunks(shapes audit.Shapes, chunks []uint32) error {
	for _, chunk := range chunks {
		if int64(chunk) >= int64(shapes.Chunks()) {
			return fmt.Errorf("%w: chunk %d of %d", ErrResult, chunk, shapes.Chunks())
		}
	}
	return nil
}
