package train

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestAuditInTheTrainersType checks that a verifier that computes in one type can repeat the
// computation of a trainer that uses the other type. In different types, the two gradients differ
// by more than any limit.
func TestAuditInTheTrainersType(t *testing.T) {
	if !torchtest.BF16(t) {
		t.Skip("needs a machine on which bf16 computes rightly")
	}
	for own, other := range map[torch.DType]audit.Precision{torch.F32: audit.BF16, torch.BF16: audit.F32} {
		t.Run("a verifier in "+own.String(), func(t *testing.T) {
			a := newAudited(t, 1, true, func(o *Options) { o.Compute.Compute = typeOf(other) })
			a.verifier = newTestTrainer(t, func(o *Options) {
				o.Audited, o.Model, o.TrainerID, o.MicroBatch = true, snapshotOf(t, splitConfig), [32]byte{2}, 4
				o.Optimizer.Distro.Quantize1Bit, o.Compute.Compute = true, own
			})
			if want := []audit.Precision{precisionOf(own), other}; !slices.Equal(a.verifier.Precisions(), want) {
				t.Fatalf("precisions %v, want %v", a.verifier.Precisions(), want)
			}
			chunks := allChunks(a.trainer.Shapes())
			for step := uint32(1); step <= 3; step++ {
				batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
				payload := a.step(step, batch, true)
				opening, err := a.trainer.Open(step, chunks)
				if err != nil {
					t.Fatal(err)
				}
				a.in = other
				if report := a.audit(step, batch, payload, opening); report.Judge(other.Limits()) != audit.Passed {
					t.Errorf("step %d in %v: fault %v, error %v", step, other, report.Fault, report.Error)
				}
				a.in = precisionOf(own)
				if report := a.audit(step, batch, payload, opening); report.Judge(audit.F32Limits) == audit.Passed {
					t.Errorf("step %d: no difference between the types", step)
				}
				a.hold(step, true)
				a.applyOldest()
			}
		})
	}
}

// TestTypeThatIsNotThere checks that an unavailable type causes an error, not a verdict.
func TestTypeThatIsNotThere(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	a.step(1, toyBatch(0, 2), true)
	a.verifier.examiner.(*distroExaminer).other = otherwise{requested: true, err: torch.ErrNoType}
	_, err := a.verifier.Recompute(t.Context(), audit.Recomputation{Step: 1, Chunks: []uint32{0}, Precision: audit.BF16}, toyBatch(0, 2))
	if !errors.Is(err, errUnsupported) || !errors.Is(err, torch.ErrNoType) {
		t.Errorf("error %v", err)
	}
}

// ending is a context that is cancelled after a number of calls of Err.
type ending struct {
	context.Context
	left atomic.Int32
}

func (e *ending) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return e.Context.Err()
}

// TestCancelledRecomputationsLeaveNothing checks that a recomputation in another type can be
// cancelled at any time. The next recomputation must not contain its gradient.
func TestCancelledRecomputationsLeaveNothing(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	x := audit.Recomputation{Step: 1, Trainer: [32]byte{1}, Chunks: allChunks(a.verifier.Shapes()), Precision: audit.BF16}
	want, err := a.verifier.Recompute(t.Context(), x, toyBatch(0, 4))
	if errors.Is(err, errUnsupported) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	cancelled := 0
	for looks := range int32(40) {
		ctx := &ending{Context: t.Context()}
		ctx.left.Store(looks)
		if _, err := a.verifier.Recompute(ctx, x, toyBatch(0, 4)); err != nil {
			cancelled++
		}
		got, err := a.verifier.Recompute(t.Context(), x, toyBatch(0, 4))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Updates, want.Updates) {
			t.Fatalf("after a reference cancelled at look %d the next one has other gradients", looks)
		}
	}
	if cancelled < 3 {
		t.Errorf("%d references were cancelled", cancelled)
	}
}
