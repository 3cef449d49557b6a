package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
)

// auditing is what audits need of an optimizer.
type auditing interface {
	// reference returns what is known of a step by the rules alone. It may be called concurrently with everything.
	reference(step uint32, trainer [32]byte) *audit.Reference
	// tookBack is called with the lock of the history when the result of a step was rolled back.
	tookBack(step uint32)
	// recompute is called under the lock, and fills in what the gradient of a step adds to the chunks of a reference. Model and optimizer are
	// afterwards what they were, to the bit.
	recompute(ctx context.Context, x audit.Recomputation, batch data.Batch, reference *audit.Reference) error
}

// Shapes returns how the model is cut, for package audit.
func (m *member) Shapes() audit.Shapes { return m.shapes }

// Open shows chunks of the momentum of a step, which must be the newest that was trained. It
// waits for no gradient: it may be called from begun of Train, and has to be before the next
// result is made.
func (m *member) Open(step uint32, chunks []uint32) (audit.Opening, error) {
	return m.history.show(step, m.trainer, chunks)
}

// Settle says whether the result of a step, the newest that was trained, is held by others. One that is
// not is rolled back: the momentum is what it was before, to the bit, and the next result goes on from
// that. What is held stays, whether it counts or not. It has to be called before the next result is
// made, and may be from begun of Train. Where the momentum began afresh since there is nothing to do.
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

// CheckLight returns what is wrong with a claim, as far as it takes no gradient to know.
func (m *member) CheckLight(c audit.Claim) audit.Fault {
	reference := m.by.reference(c.Header.Step, c.Header.Trainer)
	for _, opened := range c.Opening.Chunks {
		reference.Chunks = append(reference.Chunks, opened.Chunk)
	}
	return reference.Check(c).Fault
}

// Recompute computes the gradient that a trainer of an earlier step should have had of its batch, in
// the given chunks and in one of the types of Precisions. Model and momentum are afterwards what they were, to the bit.
//
// The weights that the step was trained from are worked out from the present ones, by taking
// back what was applied since: each is right to the last bit or two, which is far less than what
// gradients on different machines differ by. So nobody keeps old weights, and a step can be
// recomputed as long as the results since are kept.
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

// checkApplied refuses other steps than those that were applied since the one that is recomputed, newest first.
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

// checkChunks refuses chunks that the model has not.
func checkChunks(shapes audit.Shapes, chunks []uint32) error {
	for _, chunk := range chunks {
		if int64(chunk) >= int64(shapes.Chunks()) {
			return fmt.Errorf("%w: chunk %d of %d", ErrResult, chunk, shapes.Chunks())
		}
	}
	return nil
}
