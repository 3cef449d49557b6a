package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
)

// auditing is the optimizer's part of audits.
type auditing interface {
	// reference returns the rules' part of a step's reference. It may be called concurrently with
	// all other methods.
	reference(step uint32, trainer [32]byte) *audit.Reference
	// tookBack is called with the lock of the history after the result of a step was rolled back.
	tookBack(step uint32)
	// recompute is called under the lock. It fills in what the gradient of a step adds to the
	// chunks of a reference. Model and optimizer are unchanged afterwards, bit for bit.
	recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) error
}

// Shapes returns how the model is cut into chunks, for package audit.
func (m *member) Shapes() audit.Shapes { return m.shapes }

// Open opens chunks of the momentum of a step, which must be the newest trained step. It does not
// wait for a gradient. It may be called from begun of Train, and must be called before the next
// result is made.
func (m *member) Open(step uint32, chunks []uint32) (audit.Opening, error) {
	return m.history.show(step, m.trainer, chunks)
}

// Settle sets whether the result of a step, the newest trained step, is held by witnesses. If it is
// not, it is rolled back: the momentum is restored, bit for bit, and the next result continues from
// that. A held result stays, whether it counts or not. Settle must be called before the next result
// is made, and may be called from begun of Train. It does nothing if the momentum was reset since.
func (m *member) Settle(step uint32, held bool) error {
	if m.history == nil {
		return fmt.Errorf("settle step %d: %w: Options.Audited is not set", step, errUnsupported)
	}
	if held {
		return nil
	}
	defer m.history.lock()()
	took, err := m.history.rollback(step)
	if took {
		m.by.tookBack(step)
	}
	return err
}

// CheckLight returns the fault of a claim, as far as it can be found without a gradient.
func (m *member) CheckLight(c audit.Claim) audit.Fault {
	reference := m.by.reference(c.Header.Step, c.Header.Trainer)
	for _, opened := range c.Opening.Chunks {
		reference.Chunks = append(reference.Chunks, opened.Chunk)
	}
	return reference.Check(c).Fault
}

// Recompute recomputes the gradient that a trainer of an earlier step should have had for its
// batch, in the given chunks and in one of the types of Precisions. Model and momentum are
// unchanged afterwards, bit for bit.
//
// The weights that the step was trained from are computed from the current ones, by undoing the
// results applied since. Each is right to the last bit or two, which is far less than the
// differences between gradients on different machines. Therefore no old weights are kept, and a
// step can be recomputed as long as the results since then are kept.
func (m *member) Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error) {
	reference := m.by.reference(x.Step, x.Trainer)
	reference.Chunks = slices.Clone(x.Chunks)
	err := checkChunks(m.shapes, x.Chunks)
	if err == nil {
		err = m.lock(ctx)
	}
	if err == nil {
		defer m.unlock()
		err = m.by.recompute(ctx, x, batch, reference)
	}
	if err != nil {
		return nil, fmt.Errorf("recompute step %d of trainer %x: %w", x.Step, x.Trainer[:4], err)
	}
	return reference, nil
}

// checkApplied refuses results unless they are those of the steps applied since the recomputed one,
// newest first.
func (m *member) checkApplied(x audit.Recomputation) error {
	if len(x.Applied) == 0 {
		if m.step != x.Weights {
			return fmt.Errorf("%w: step %d was applied; results since step %d are needed", errStep, m.step, x.Weights)
		}
		return nil
	}
	for i, a := range x.Applied {
		if want := m.step - uint32(i); a.Step != want || a.Step <= x.Weights {
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
