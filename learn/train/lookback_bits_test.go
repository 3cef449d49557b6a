package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// oddBits are weights that are difficult to restore: zeros of both signs, the smallest and the
// largest numbers, infinities, and NaNs.
var oddBits = []uint32{0, 1 << 31, 1, 1<<31 | 1, 0x007fffff, 0x00800000, 0x807fffff, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc12345, 0x7f800001, 0x3f800000, 0xbf7fffff}

func (a *audited) bits() (bits [][]uint32) {
	for _, w := range a.verifier.weights() {
		of := make([]uint32, len(w))
		for i := range w {
			of[i] = math.Float32bits(w[i])
		}
		bits = append(bits, of)
	}
	return bits
}

func sameWords(a, b [][]uint32) bool { return slices.EqualFunc(a, b, slices.Equal) }

// TestLookBackToTheBit checks that audits restore the weights to the bits that a copy would have
// restored. It audits each of many steps, one after the other, without applying results between
// audits. Some results count and some do not, some audits are cancelled, both precisions occur, and
// some weights are difficult to restore.
func TestLookBackToTheBit(t *testing.T) {
	for _, c := range []struct {
		lag       uint32
		signs     bool
		decay     float64
		precision audit.Precision
		odd       bool
	}{
		{1, true, 0.01, audit.F32, false}, {2, true, 0.01, audit.BF16, false}, {1, false, 0.5, audit.BF16, true},
		{2, false, 0, audit.F32, true}, {2, true, 499, audit.F32, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			if c.precision == audit.BF16 && !torchtest.BF16(t) {
				t.Skip("needs a machine on which bf16 computes rightly")
			}
			change := func(o *Options) { o.Optimizer.Distro.WeightDecay = c.decay }
			a := newAudited(t, c.lag, c.signs, change)
			a.verifier.distro().optimizer.config.WeightDecay = c.decay
			for step := uint32(1); step <= 8; step++ {
				a.step(step, toyBatch(uint64(step)*4, uint64(step)*4+4), step%3 != 0)
				a.hold(step, true)
				a.applyOldest()
			}
			if c.odd {
				for i, w := range a.verifier.weights() {
					for j := range w {
						if (i+j)%3 == 0 {
							w[j] = math.Float32frombits(oddBits[(i+j/3)%len(oddBits)])
						}
					}
				}
				a.verifier.changed()
			}
			before, chunks := a.bits(), allChunks(a.verifier.Shapes())
			ended, end := context.WithCancel(t.Context())
			end()
			for step := uint32(1); step <= 8; step++ {
				x := audit.Recomputation{Step: step, Trainer: [32]byte{1}, Precision: c.precision, Chunks: chunks}
				if step > c.lag {
					x.Weights = step - c.lag
				}
				for _, applied := range a.applied {
					if applied.Step > x.Weights {
						x.Applied = append(x.Applied, applied)
					}
				}
				batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
				if _, err := a.verifier.Recompute(t.Context(), x, batch); err != nil && (!c.odd || !errors.Is(err, errNotFinite)) && !errors.Is(err, torch.ErrSlowType) && !errors.Is(err, errUnsupported) {
					t.Errorf("step %d: %v", step, err)
				}
				if !sameWords(a.bits(), before) {
					t.Fatalf("step %d: weights differ after an audit", step)
				}
				breakOff := &endsLater{Context: t.Context(), ended: ended, calls: int(step)}
				if _, err := a.verifier.Recompute(breakOff, x, batch); step <= 2 && !errors.Is(err, context.Canceled) {
					t.Errorf("step %d: it was not broken off: %v", step, err)
				}
				if !sameWords(a.bits(), before) {
					t.Fatalf("step %d: weights differ after an audit that was broken off", step)
				}
			}
		})
	}
}

// endsLater is a context that ends after a number of calls of Err.
type endsLater struct {
	context.Context
	ended context.Context
	calls int
}

func (e *endsLater) Err() error {
	if e.calls--; e.calls < 0 {
		return e.ended.Err()
	}
	return nil
}

// TestAuditsBetweenSteps checks that a member that audits between all its steps trains and applies
// the same results as a member that never audits.
func TestAuditsBetweenSteps(t *testing.T) {
	bf16 := torchtest.BF16(t) // without it, all audits compute in f32
	for lag := uint32(1); lag <= 2; lag++ {
		a := newAudited(t, lag, true, func(*Options) {})
		both := func(o *Options) {
			o.Audited = true
			o.Model = snapshotOf(t, splitConfig)
			o.Optimizer.Distro.ApplyLag, o.Optimizer.Distro.ClipGradNorm = uint8(lag), 1
			o.TrainerID, o.MicroBatch = [32]byte{2}, 4
		}
		never := newTestTrainer(t, both)
		for step := uint32(1); step <= 10; step++ {
			batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
			payload := a.step(step, batch, step%3 != 0)
			opening, err := a.trainer.Open(step, allChunks(a.trainer.Shapes()))
			if err != nil {
				t.Fatal(err)
			}
			a.hold(step, true)
			due := len(a.waiting) >= int(lag)
			a.applyOldest()
			if due {
				if err := never.Apply(t.Context(), a.applied[0].Step, a.applied[0].Payloads, nil, false); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if bf16 {
					a.in = a.verifier.Precisions()[step%2]
				}
				a.audit(step, batch, payload, opening)
			}
			next := toyBatch(uint64(step)*4+100, uint64(step)*4+104)
			own1, _, err := a.verifier.Train(t.Context(), step, next, nil)
			if err != nil {
				t.Fatal(err)
			}
			own2, _, err := never.Train(t.Context(), step, next, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(own1, own2) {
				t.Fatalf("lag %d, step %d: the auditor trains another result", lag, step)
			}
		}
		if digest(t, a.verifier) != digest(t, never) {
			t.Errorf("lag %d: the auditor has another model", lag)
		}
	}
}
