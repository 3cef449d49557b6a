package train

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
)

// auditedLocal is a run of a trainer of local steps and a verifier that computes otherwise.
type auditedLocal struct {
	t                 *testing.T
	trainer, verifier *LocalTrainer
	roots             map[uint32][32]byte
	newest            uint32          // step of the newest result that others hold
	applied           []audit.Applied // newest first
	waiting           []audit.Applied
}

func newAuditedLocal(t *testing.T, change func(o *Options)) *auditedLocal {
	both := func(o *Options) {
		o.Audited = true
		o.Model = snapshotOf(t, splitConfig)
		o.Optimizer.LocalSteps.ErrorDecay = 0.95
	}
	return &auditedLocal{
		t: t, roots: map[uint32][32]byte{},
		trainer: newLocalTrainer(t, both, func(o *Options) { o.MicroBatch = 1 }, change),
		verifier: newLocalTrainer(t, both, func(o *Options) {
			o.TrainerID = [32]byte{2}
			o.MicroBatch = 4
		}, change),
	}
}

// round trains a round, opens it and settles it. Cheat changes the batch that is trained; nil: nothing does.
func (a *auditedLocal) round(step uint32, batch data.Batch, held bool, cheat func(data.Batch) data.Batch) (payload []byte, opening audit.Opening) {
	a.t.Helper()
	trained := batch
	if cheat != nil {
		trained = cheat(batch)
	}
	payload, _, err := a.trainer.Train(a.t.Context(), step, trained, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	header, _, err := a.trainer.Decode(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	if header.Previous != a.newest || header.Precision != audit.F32.Code() {
		a.t.Errorf("step %d: header %+v, want it to go on from %d", step, header, a.newest)
	}
	if opening, err = a.trainer.Open(step, allChunks(a.trainer.Shapes())); err != nil {
		a.t.Fatal(err)
	}
	if err := a.trainer.Settle(step, held); err != nil {
		a.t.Fatal(err)
	}
	now := audit.Applied{Step: step}
	if held {
		a.newest, a.roots[step] = step, header.Momentum
		now.Payloads = [][]byte{payload}
	}
	a.waiting = append(a.waiting, now)
	return payload, opening
}

// settle applies the oldest round that waits, if it is due.
func (a *auditedLocal) settle() {
	a.t.Helper()
	if uint32(len(a.waiting)) < a.trainer.ApplyLag() {
		return
	}
	now := a.waiting[0]
	a.waiting = a.waiting[1:]
	for _, member := range []*LocalTrainer{a.trainer, a.verifier} {
		if err := member.Apply(a.t.Context(), now.Step, now.Payloads, member == a.trainer && len(now.Payloads) > 0); err != nil {
			a.t.Fatal(err)
		}
	}
	a.applied = slices.Insert(a.applied, 0, now)
}

// audit lets the verifier check a round.
func (a *auditedLocal) audit(step uint32, batch data.Batch, payload []byte, opening audit.Opening) audit.Report {
	a.t.Helper()
	x := audit.Recomputation{Step: step, Trainer: [32]byte{1}, Chunks: allChunks(a.trainer.Shapes())}
	x.Weights = step - min(step, a.trainer.ApplyLag())
	for _, applied := range a.applied {
		if applied.Step > x.Weights {
			x.Applied = append(x.Applied, applied)
		}
	}
	before := digest(a.t, a.verifier)
	reference, err := a.verifier.Recompute(a.t.Context(), x, batch)
	if err != nil {
		a.t.Fatal(err)
	}
	if digest(a.t, a.verifier) != before {
		a.t.Error("recomputing changed the verifier's model")
	}
	header, results, err := a.verifier.Decode(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	claim := audit.Claim{Opening: opening, Result: results, Header: header, PreviousRoot: a.roots[opening.Previous]}
	if !claim.Binds(a.verifier.Shapes(), x.Chunks) {
		a.t.Errorf("step %d: the opening does not lead to the roots", step)
	}
	return reference.Check(claim)
}

// TestAuditsPassHonestLocalSteps whatever is held, at both lags, at once and some rounds later.
func TestAuditsPassHonestLocalSteps(t *testing.T) {
	for _, lag := range []uint8{1, 2} {
		a := newAuditedLocal(t, func(o *Options) { o.Optimizer.LocalSteps.ApplyLag = lag })
		type kept struct {
			batch   data.Batch
			payload []byte
			opening audit.Opening
		}
		var all []kept
		worst, chunk := 0.0, 0.0
		for step := uint32(1); step <= 12; step++ {
			batch := toyBatch(uint64(step)*8, uint64(step)*8+8)
			payload, opening := a.round(step, batch, step%4 != 3, nil)
			all = append(all, kept{batch, payload, opening})
			for _, late := range []uint32{step, step - min(step-1, 5)} {
				k := all[late-1]
				report := a.audit(late, k.batch, k.payload, k.opening)
				worst = max(worst, report.Error)
				for _, c := range report.Chunks {
					chunk = max(chunk, c.Error)
				}
				if outcome := report.Judge(testLimits); outcome != audit.Passed {
					t.Errorf("lag %d, step %d, audited in %d: %v, fault %v, error %v", lag, late, step, outcome, report.Fault, report.Error)
				}
			}
			a.settle()
		}
		t.Logf("lag %d: largest error %.2g, of a chunk %.2g", lag, worst, chunk)
	}
}
