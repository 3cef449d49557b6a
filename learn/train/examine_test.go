package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
)

// testLimits are far above the rounding differences of the toy's gradients, and far below the error
// of a false gradient.
var testLimits = audit.Limits{Error: 0.02, Chunk: 0.1, Stray: 0, Worst: 0.1}

// audited is a run with a trainer and a verifier that uses other micro-batches.
type audited struct {
	t                 *testing.T
	trainer, verifier *Trainer
	lag               uint32
	roots             map[uint32][32]byte
	newest            uint32          // step of the newest result that other members hold
	applied           []audit.Applied // newest first
	waiting           []audit.Applied // oldest first
	in                audit.Precision
}

func newAudited(t *testing.T, lag uint32, signs bool, change func(o *Options)) *audited {
	both := func(o *Options) {
		o.Audited = true
		o.Model = snapshotOf(t, splitConfig)
		o.Optimizer.Distro.ApplyLag, o.Optimizer.Distro.Quantize1Bit = uint8(lag), signs
		o.Optimizer.Distro.ClipGradNorm = 1
	}
	return &audited{
		t: t, lag: lag, roots: map[uint32][32]byte{},
		trainer: newTestTrainer(t, both, func(o *Options) { o.MicroBatch = 1 }, change),
		verifier: newTestTrainer(t, both, func(o *Options) {
			o.TrainerID = [32]byte{2}
			o.MicroBatch = 4
		}),
	}
}

// step trains a step of the trainer. counts is whether the result counts.
func (a *audited) step(step uint32, batch data.Batch, counts bool) (payload []byte) {
	a.t.Helper()
	payload, _, err := a.trainer.Train(a.t.Context(), step, batch, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	header, _, err := a.trainer.Decode(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	if header.Previous != a.newest || header.Batch != batch.Hash() || header.Precision != a.trainer.precisions[0].Code() {
		a.t.Errorf("step %d: header %+v", step, header)
	}
	a.roots[step] = header.Momentum
	now := audit.Applied{Step: step}
	if counts {
		now.Payloads = [][]byte{payload}
	}
	a.waiting = append(a.waiting, now)
	return payload
}

// hold sets whether other members hold the newest result.
func (a *audited) hold(step uint32, held bool) {
	a.t.Helper()
	if err := a.trainer.SetAttested(step, held); err != nil {
		a.t.Fatal(err)
	}
	if held {
		a.newest = step
	}
}

// applyOldest applies the oldest waiting step, if it is due.
func (a *audited) applyOldest() {
	a.t.Helper()
	if uint32(len(a.waiting)) < a.lag {
		return
	}
	now := a.waiting[0]
	a.waiting = a.waiting[1:]
	if err := a.trainer.Apply(a.t.Context(), now.Step, now.Payloads, nil, len(now.Payloads) > 0); err != nil {
		a.t.Fatal(err)
	}
	if err := a.verifier.Apply(a.t.Context(), now.Step, now.Payloads, nil, false); err != nil {
		a.t.Fatal(err)
	}
	a.applied = slices.Insert(a.applied, 0, now)
}

// audit makes the verifier check a step.
func (a *audited) audit(step uint32, batch data.Batch, payload []byte, opening audit.Opening) audit.Report {
	a.t.Helper()
	x := audit.Recomputation{Step: step, Trainer: [32]byte{1}, Precision: a.in}
	if step > a.lag {
		x.Weights = step - a.lag
	}
	for _, applied := range a.applied {
		if applied.Step > x.Weights {
			x.Applied = append(x.Applied, applied)
		}
	}
	for _, c := range opening.Chunks {
		x.Chunks = append(x.Chunks, c.Chunk)
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
	report := reference.Check(claim)
	if light := a.verifier.CheckLight(claim); light != report.Fault {
		a.t.Errorf("step %d: without a gradient: fault %v, with one: %v", step, light, report.Fault)
	}
	return report
}

func allChunks(shapes audit.Shapes) []uint32 {
	chunks := make([]uint32, min(shapes.Chunks(), audit.MaxChunks))
	for i := range chunks {
		chunks[i] = uint32(i)
	}
	return chunks
}

// TestAuditsPassHonestTrainers checks that audits pass honest trainers at both lags, on one and on
// several engines, whichever results are attested or count. A step is opened before the next one is
// trained, and checked after all due results are applied.
func TestAuditsPassHonestTrainers(t *testing.T) {
	for name, c := range map[string]struct {
		lag    uint32
		change func(o *Options)
	}{
		"lag 1":           {1, func(*Options) {}},
		"lag 2":           {2, func(*Options) {}},
		"data parallel":   {1, func(o *Options) { o.Parallel.Data, o.Threads = 2, 2 }},
		"tensor parallel": {1, func(o *Options) { o.Parallel.Tensor, o.Threads = 2, 2 }},
		"values":          {2, func(*Options) {}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAudited(t, c.lag, name != "values", c.change)
			chunks := allChunks(a.trainer.Shapes())
			for step := uint32(1); step <= 12; step++ {
				batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
				payload := a.step(step, batch, step%3 != 0)
				opening, err := a.trainer.Open(step, chunks)
				if err != nil {
					t.Fatal(err)
				}
				a.hold(step, step%4 > 0) // some held results do not count, and some results that no member holds count: neither must matter
				a.applyOldest()
				report := a.audit(step, batch, payload, opening)
				if report.Judge(testLimits) != audit.Passed {
					t.Errorf("step %d: fault %v, error %v", step, report.Fault, report.Error)
				}
				other := a.audit(step, toyBatch(uint64(step)*4+1, uint64(step)*4+5), payload, opening)
				if other.Judge(testLimits) != audit.Strange {
					t.Errorf("step %d with another batch: fault %v, error %v", step, other.Fault, other.Error)
				}
			}
		})
	}
}

// TestAuditOfAnOldStep checks that an audit passes if the juror has applied more steps since.
func TestAuditOfAnOldStep(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	chunks := allChunks(a.trainer.Shapes())
	var payload []byte
	var opening audit.Opening
	const asked = 4
	for step := uint32(1); step <= 9; step++ {
		batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
		p := a.step(step, batch, true)
		if step == asked {
			var err error
			if opening, err = a.trainer.Open(step, chunks); err != nil {
				t.Fatal(err)
			}
			payload = p
		}
		a.hold(step, true)
		a.applyOldest()
	}
	report := a.audit(asked, toyBatch(asked*4, asked*4+4), payload, opening)
	if report.Judge(testLimits) != audit.Passed || report.Error > 1e-3 {
		t.Errorf("fault %v, error %v after five more steps", report.Fault, report.Error)
	}
	for name, change := range map[string]func(x *audit.Recomputation, batch *data.Batch){
		"none":    func(x *audit.Recomputation, _ *data.Batch) { x.Applied = nil },
		"too few": func(x *audit.Recomputation, _ *data.Batch) { x.Applied = x.Applied[:2] },
		"a gap":   func(x *audit.Recomputation, _ *data.Batch) { x.Applied = slices.Delete(slices.Clone(x.Applied), 1, 2) },
		"oldest":  func(x *audit.Recomputation, _ *data.Batch) { x.Applied = x.Applied[1:] },
		"not ours": func(x *audit.Recomputation, _ *data.Batch) {
			x.Applied = []audit.Applied{{Step: 9, Payloads: [][]byte{{1}}}}
		},
		"no chunk":  func(x *audit.Recomputation, _ *data.Batch) { x.Chunks = []uint32{1 << 31} },
		"no tokens": func(_ *audit.Recomputation, batch *data.Batch) { batch.Sequences = nil },
	} {
		before := digest(t, a.verifier)
		x := audit.Recomputation{Step: asked, Weights: asked - 1, Chunks: chunks, Applied: slices.Clone(a.applied[:6])}
		batch := toyBatch(1, 2)
		change(&x, &batch)
		if _, err := a.verifier.Recompute(t.Context(), x, batch); err == nil {
			t.Errorf("%s: no error", name)
		}
		if digest(t, a.verifier) != before {
			t.Errorf("%s: the model changed", name)
		}
	}
}

// TestOnlyTheNewestStepIsOpened checks that Open refuses all steps but the newest, and that the
// first step after a reset continues from no earlier step.
func TestOnlyTheNewestStepIsOpened(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	if _, err := a.trainer.Open(1, []uint32{0}); !errors.Is(err, errStep) {
		t.Errorf("nothing was trained: error %v", err)
	}
	for step := uint32(1); step <= 3; step++ {
		a.step(step, toyBatch(0, 2), true)
		a.hold(step, true)
		a.applyOldest()
	}
	if _, err := a.trainer.Open(2, []uint32{0}); !errors.Is(err, errStep) {
		t.Errorf("an old step: error %v", err)
	}
	if _, err := a.trainer.Open(3, []uint32{1 << 30}); !errors.Is(err, ErrResult) {
		t.Errorf("no such chunk: error %v", err)
	}
	if err := a.trainer.ResetOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.newest = 0
	if err := a.trainer.SetAttested(3, false); err != nil {
		t.Errorf("an older result is attested: %v", err)
	}
	a.step(4, toyBatch(0, 2), true)
	if o, err := a.trainer.Open(4, []uint32{0}); err != nil || o.Previous != 0 {
		t.Errorf("after a fresh start: previous %d, error %v", o.Previous, err)
	}
	if _, err := newTestTrainer(t).Open(1, nil); !errors.Is(err, errUnsupported) {
		t.Errorf("without audits: error %v", err)
	}
}

// TestStateOfAnAuditedRunIsNotTaken checks that an audited run does not load a saved momentum. No
// commitment exists from which such a momentum could continue.
func TestStateOfAnAuditedRunIsNotTaken(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	a.step(1, toyBatch(0, 2), true)
	a.applyOldest()
	state, err := a.trainer.OptimizerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.trainer.SetOptimizerState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if norm(momentumOf(a.trainer.distro().optimizer)) != 0 {
		t.Error("the momentum is not zero")
	}
}

// TestRootsAreThereWhenAudited checks that results contain momentum roots in audited runs, and only
// there.
func TestRootsAreThereWhenAudited(t *testing.T) {
	with, without := newTestTrainer(t, func(o *Options) { o.Audited = true }), newTestTrainer(t)
	for _, c := range []struct{ from, by *Trainer }{{with, without}, {without, with}} {
		payload, _, err := c.from.Train(t.Context(), 1, toyBatch(0, 2), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.from.Verify(payload, 1, toyBatch(0, 2).ID, [32]byte{1}); err != nil {
			t.Error(err)
		}
		if err := c.by.Verify(payload, 1, toyBatch(0, 2).ID, [32]byte{1}); !errors.Is(err, ErrResult) {
			t.Errorf("another kind of run: error %v", err)
		}
	}
	for name, change := range map[string]func(o *Options){
		"lookahead":   func(o *Options) { o.Optimizer.Distro.Lookahead = true },
		"no clipping": func(o *Options) { o.Optimizer.Distro.ClipGradNorm = 0 },
	} {
		o := toyOptions(t)
		o.Optimizer.Distro.ClipGradNorm = 1
		o.Audited = true
		change(&o)
		if _, err := New(t.Context(), o); !errors.Is(err, errUnsupported) {
			t.Errorf("%s with audits: error %v", name, err)
		}
	}
}

// TestOpenFromBegun checks that begun can open a step. With an apply_lag of 2, the gradient of the
// next step is computed before the seed arrives that selects the chunks to open.
func TestOpenFromBegun(t *testing.T) {
	a := newAudited(t, 2, true, func(*Options) {})
	a.step(1, toyBatch(0, 2), true)
	var opening audit.Opening
	_, _, err := a.trainer.Train(t.Context(), 2, toyBatch(2, 4), func(context.Context) (err error) {
		opening, err = a.trainer.Open(1, []uint32{0, 3})
		return err
	})
	if err != nil || len(opening.Chunks) != 2 {
		t.Errorf("%d chunks, error %v", len(opening.Chunks), err)
	}
}

// TestFaintTensorsAreMeasuredByTheModel checks that a chunk's usual length is computed from its
// tensor. The length is never less than 1/128 of the length it would have if all elements of the
// model had the same size.
func TestFaintTensorsAreMeasuredByTheModel(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	scale := a.trainer.rates.lr(1)
	shapes := a.trainer.Shapes()
	reference := &audit.Reference{Shapes: shapes, Step: 1}
	gradients := make([][]float32, len(shapes))
	for i, l := range a.trainer.distro().optimizer.layouts {
		gradients[i] = make([]float32, l.Elements())
		for j := range gradients[i] {
			gradients[i][j] = 1e-3
			if i == 0 {
				gradients[i][j] = 1e-9
			}
		}
	}
	for chunk := range uint32(shapes.Chunks()) {
		reference.Chunks = append(reference.Chunks, chunk)
	}
	if err := a.trainer.examiner.(*distroExaminer).fill(reference, gradients); err != nil {
		t.Fatal(err)
	}
	whole := norm(gradients)
	unit := float64(scale) * clipScale(whole, a.trainer.distro().optimizer.config.ClipGradNorm)
	for i, chunk := range reference.Chunks {
		tensor, _, _ := shapes.Find(chunk)
		size := float64(shapes[tensor].Rows * shapes[tensor].Cols)
		want := 1e-3 * unit * math.Sqrt(size)
		if tensor == 0 {
			want = whole / math.Sqrt(float64(a.trainer.Elements())) / 128 * unit * math.Sqrt(size)
		}
		if got := reference.Usual[i]; math.Abs(got/want-1) > 1e-3 {
			t.Errorf("chunk %d of tensor %d: usual length %v, want %v", chunk, tensor, got, want)
		}
	}
}

// TestAuditsPassTrainersThatMissedSteps checks that audits pass a trainer that missed steps, for
// example because it was a verifier in them.
func TestAuditsPassTrainersThatMissedSteps(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	chunks := allChunks(a.trainer.Shapes())
	previous := uint32(0)
	for step := uint32(1); step <= 9; step++ {
		if step%4 > 1 {
			a.waiting = append(a.waiting, audit.Applied{Step: step})
			a.applyOldest()
			continue
		}
		batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
		payload := a.step(step, batch, true)
		opening, err := a.trainer.Open(step, chunks)
		if err != nil {
			t.Fatal(err)
		}
		if opening.Previous != previous {
			t.Errorf("step %d continues from step %d, want %d", step, opening.Previous, previous)
		}
		if report := a.audit(step, batch, payload, opening); report.Judge(testLimits) != audit.Passed {
			t.Errorf("step %d: fault %v, error %v", step, report.Fault, report.Error)
		}
		a.hold(step, step != 5)
		a.applyOldest()
		previous = a.newest
	}
}

// TestRollback checks that a result that no member holds leaves no trace: the momentum has the same
// bits as before, even if the next gradient is already computed.
func TestRollback(t *testing.T) {
	for _, lag := range []uint32{1, 2} {
		a, twin := newAudited(t, lag, true, func(*Options) {}), newAudited(t, lag, true, func(*Options) {})
		for step := uint32(1); step <= 7; step++ {
			lost := step == 1 || step == 4 || step == 5
			batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
			before := copySlices(momentumOf(a.trainer.distro().optimizer))
			if _, _, err := a.trainer.Train(t.Context(), step, batch, nil); err != nil {
				t.Fatal(err)
			}
			if lost {
				a.waiting = append(a.waiting, audit.Applied{Step: step})
				_, _, err := a.trainer.Train(t.Context(), step+1, batch, func(context.Context) error {
					a.hold(step, false)
					a.hold(step, false) // the second call changes nothing
					return context.Canceled
				})
				if !errors.Is(err, context.Canceled) || !sameBits(before, momentumOf(a.trainer.distro().optimizer)) {
					t.Errorf("lag %d, step %d: error %v, or the momentum is a different one", lag, step, err)
				}
				if _, err := a.trainer.Open(a.newest, []uint32{0}); !errors.Is(err, errStep) {
					t.Errorf("lag %d, step %d: what went before is opened: error %v", lag, step, err)
				}
			} else {
				a.hold(step, true)
				a.waiting = append(a.waiting, audit.Applied{Step: step})
				twin.step(step, batch, false)
				twin.hold(step, true)
			}
			a.applyOldest()
			twin.apply(step + 1 - lag)
			if !sameBits(momentumOf(a.trainer.distro().optimizer), momentumOf(twin.trainer.distro().optimizer)) {
				t.Fatalf("lag %d, step %d: the momentum differs from training with the attested results only", lag, step)
			}
		}
		if err := a.trainer.SetAttested(6, false); !errors.Is(err, errStep) {
			t.Errorf("lag %d: an older step: error %v", lag, err)
		}
	}
}

// apply makes the trainer apply a step without results.
func (a *audited) apply(step uint32) {
	a.t.Helper()
	if step == 0 {
		return
	}
	if err := a.trainer.Apply(a.t.Context(), step, nil, nil, false); err != nil {
		a.t.Fatal(err)
	}
}

// TestInjectedMomentumIsFound checks that audits find a trainer that changes its momentum between
// two steps, or starts with a nonzero momentum. The opening of the next step reveals it, even if
// the gradient is honest.
func TestInjectedMomentumIsFound(t *testing.T) {
	for name, first := range map[string]bool{"newcomer": true, "between steps": false} {
		a := newAudited(t, 1, true, func(*Options) {})
		step := uint32(1)
		if !first {
			a.step(step, toyBatch(4, 8), true)
			a.hold(step, true)
			a.applyOldest()
			step++
		}
		for _, delta := range momentumOf(a.trainer.distro().optimizer) {
			for i := range delta {
				delta[i] += 1e-4
			}
		}
		batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
		payload := a.step(step, batch, true)
		opening, err := a.trainer.Open(step, allChunks(a.trainer.Shapes()))
		if err != nil {
			t.Fatal(err)
		}
		a.applyOldest()
		if report := a.audit(step, batch, payload, opening); report.Judge(testLimits) == audit.Passed {
			t.Errorf("%s: passed, error %v", name, report.Error)
		}
	}
}
