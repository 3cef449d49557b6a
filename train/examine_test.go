package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/data"
)

// testLimits are far above what the toy's gradients differ by, and far below a lie.
var testLimits = audit.Limits{Error: 0.02, Chunk: 0.1, Stray: 0, Worst: 0.1}

// audited is a run of a trainer and a verifier that computes otherwise.
type audited struct {
	t                 *testing.T
	trainer, verifier *Trainer
	lag               uint32
	roots             map[uint32][32]byte
	counted           map[uint32]bool
	applied           []Applied // newest first
	waiting           []Applied // oldest first
	in                audit.Precision
}

func newAudited(t *testing.T, lag uint32, signs bool, change func(o *Options)) *audited {
	both := func(o *Options) {
		o.Audited = true
		o.Model = snapshotOf(t, splitConfig)
		o.Optimizer.Distro.ApplyLag, o.Optimizer.Distro.Quantize1Bit = uint8(lag), signs
	}
	return &audited{
		t: t, lag: lag, roots: map[uint32][32]byte{}, counted: map[uint32]bool{},
		trainer: newTestTrainer(t, both, func(o *Options) { o.MicroBatch = 1 }, change),
		verifier: newTestTrainer(t, both, func(o *Options) {
			o.TrainerID = [32]byte{2}
			o.MicroBatch = 4
		}),
	}
}

// step trains a step of the trainer, and applies the step that is due.
func (a *audited) step(step uint32, batch data.Batch, counts bool) (payload []byte) {
	a.t.Helper()
	payload, _, err := a.trainer.Train(a.t.Context(), step, batch)
	if err != nil {
		a.t.Fatal(err)
	}
	header, _, err := a.trainer.Decode(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	a.roots[step], a.counted[step] = header.Momentum, counts
	now := Applied{Step: step}
	if counts {
		now.Payloads = [][]byte{payload}
	}
	a.waiting = append(a.waiting, now)
	return payload
}

// settle applies the oldest step that waits, if it is due.
func (a *audited) settle() {
	a.t.Helper()
	if uint32(len(a.waiting)) < a.lag {
		return
	}
	now := a.waiting[0]
	a.waiting = a.waiting[1:]
	if err := a.trainer.Apply(a.t.Context(), now.Step, now.Payloads, a.counted[now.Step]); err != nil {
		a.t.Fatal(err)
	}
	if err := a.verifier.Apply(a.t.Context(), now.Step, now.Payloads, false); err != nil {
		a.t.Fatal(err)
	}
	a.applied = slices.Insert(a.applied, 0, now)
}

// audit lets the verifier check a step.
func (a *audited) audit(step uint32, batch data.Batch, payload []byte, opening audit.Opening) audit.Report {
	a.t.Helper()
	x := Examination{Step: step, Trainer: [32]byte{1}, Batch: batch, Precision: a.in}
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
	exam, err := a.verifier.Examine(a.t.Context(), x)
	if err != nil {
		a.t.Fatal(err)
	}
	if digest(a.t, a.verifier) != before {
		a.t.Error("examining changed the verifier's model")
	}
	header, results, err := a.verifier.Decode(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	return exam.Check(audit.Claim{
		Opening: opening, Result: results, Header: header,
		PreviousRoot: a.roots[opening.Previous], EarlierRoot: a.roots[opening.Earlier],
		PreviousReturned: opening.Previous != 0 && !a.counted[opening.Previous] && opening.Previous+a.lag <= step,
	})
}

func allChunks(shapes audit.Shapes) []uint32 {
	chunks := make([]uint32, min(shapes.Chunks(), audit.MaxChunks))
	for i := range chunks {
		chunks[i] = uint32(i)
	}
	return chunks
}

// TestAuditsPassHonestTrainers whatever counts, at both lags, on one engine and on several. A step is
// opened before the next is trained, and checked after what is due was applied.
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
				a.settle()
				opening, err := a.trainer.Open(step, chunks)
				if err != nil {
					t.Fatal(err)
				}
				if step > 1 && opening.Previous != step-1 {
					t.Fatalf("step %d goes on from step %d", step, opening.Previous)
				}
				if late := c.lag == 2 && step > 4 && (step-2)%3 == 0; late != (opening.Earlier == step-2 && opening.Earlier != 0) {
					t.Errorf("step %d: given back late: step %d", step, opening.Earlier)
				}
				report := a.audit(step, batch, payload, opening)
				if report.Judge(testLimits) != audit.Passed {
					t.Errorf("step %d: fault %v, error %v", step, report.Fault, report.Error)
				}
				lie := a.audit(step, toyBatch(uint64(step)*4+1, uint64(step)*4+5), payload, opening)
				if lie.Judge(testLimits) != audit.Strange {
					t.Errorf("step %d with another batch: fault %v, error %v", step, lie.Fault, lie.Error)
				}
			}
		})
	}
}

// TestAuditOfAnOldStep: a juror has applied more steps since.
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
		a.settle()
	}
	report := a.audit(asked, toyBatch(asked*4, asked*4+4), payload, opening)
	if report.Judge(testLimits) != audit.Passed || report.Error > 1e-3 {
		t.Errorf("fault %v, error %v after five more steps", report.Fault, report.Error)
	}
	for name, change := range map[string]func(x *Examination){
		"none":      func(x *Examination) { x.Applied = nil },
		"too few":   func(x *Examination) { x.Applied = x.Applied[:2] },
		"a gap":     func(x *Examination) { x.Applied = slices.Delete(slices.Clone(x.Applied), 1, 2) },
		"oldest":    func(x *Examination) { x.Applied = x.Applied[1:] },
		"not ours":  func(x *Examination) { x.Applied = []Applied{{Step: 9, Payloads: [][]byte{{1}}}} },
		"no chunk":  func(x *Examination) { x.Chunks = []uint32{1 << 31} },
		"no tokens": func(x *Examination) { x.Batch.Sequences = nil },
	} {
		before := digest(t, a.verifier)
		x := Examination{Step: asked, Batch: toyBatch(1, 2), Weights: asked - 1, Chunks: chunks, Applied: slices.Clone(a.applied[:6])}
		change(&x)
		if _, err := a.verifier.Examine(t.Context(), x); err == nil {
			t.Errorf("%s: no error", name)
		}
		if digest(t, a.verifier) != before {
			t.Errorf("%s: the model changed", name)
		}
	}
}

// TestOnlyTheNewestStepIsOpened, and a fresh start goes on from nothing.
func TestOnlyTheNewestStepIsOpened(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	if _, err := a.trainer.Open(1, []uint32{0}); !errors.Is(err, ErrStep) {
		t.Errorf("nothing was trained: error %v", err)
	}
	for step := uint32(1); step <= 3; step++ {
		a.step(step, toyBatch(0, 2), true)
		a.settle()
	}
	if _, err := a.trainer.Open(2, []uint32{0}); !errors.Is(err, ErrStep) {
		t.Errorf("an old step: error %v", err)
	}
	if _, err := a.trainer.Open(3, []uint32{1 << 30}); !errors.Is(err, ErrResult) {
		t.Errorf("no such chunk: error %v", err)
	}
	if err := a.trainer.ResetOptimizer(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.step(4, toyBatch(0, 2), true)
	if o, err := a.trainer.Open(4, []uint32{0}); err != nil || o.Previous != 0 {
		t.Errorf("after a fresh start: previous %d, error %v", o.Previous, err)
	}
	if _, err := newTestTrainer(t).Open(1, nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("without audits: error %v", err)
	}
}

// TestStateOfAnAuditedRunIsNotTaken: the momentum would go on from nothing that was committed to.
func TestStateOfAnAuditedRunIsNotTaken(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	a.step(1, toyBatch(0, 2), true)
	a.settle()
	state, err := a.trainer.OptimizerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.trainer.SetOptimizerState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if norm(a.trainer.optimizer.deltas) != 0 {
		t.Error("the momentum is not zero")
	}
}

// TestRootsAreThereWhenAudited, and nowhere else.
func TestRootsAreThereWhenAudited(t *testing.T) {
	with, without := newTestTrainer(t, func(o *Options) { o.Audited = true }), newTestTrainer(t)
	for _, c := range []struct{ from, by *Trainer }{{with, without}, {without, with}} {
		payload, _, err := c.from.Train(t.Context(), 1, toyBatch(0, 2))
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
	o := toyOptions(t)
	o.Audited, o.Optimizer.Distro.Lookahead = true, true
	if _, err := New(t.Context(), o); !errors.Is(err, ErrUnsupported) {
		t.Errorf("lookahead with audits: error %v", err)
	}
}

// TestOpenFromBegun: with an apply_lag of 2 the gradient of the next step is computed before the
// seed that says what to open.
func TestOpenFromBegun(t *testing.T) {
	a := newAudited(t, 2, true, func(*Options) {})
	a.step(1, toyBatch(0, 2), true)
	var opening audit.Opening
	_, _, err := a.trainer.TrainAhead(t.Context(), 2, toyBatch(2, 4), func(context.Context) (err error) {
		opening, err = a.trainer.Open(1, []uint32{0, 3})
		return err
	})
	if err != nil || len(opening.Chunks) != 2 {
		t.Errorf("%d chunks, error %v", len(opening.Chunks), err)
	}
}

// TestFaintTensorsAreMeasuredByTheModel: a chunk's usual length is that of its tensor, but never less
// than a 128th of what it were if all elements of the model were alike.
func TestFaintTensorsAreMeasuredByTheModel(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	scale := a.trainer.lr(1)
	shapes := a.trainer.Shapes()
	exam := &audit.Exam{Shapes: shapes, Step: 1}
	gradients := make([][]float32, len(shapes))
	for i, l := range a.trainer.optimizer.layouts {
		gradients[i] = make([]float32, l.Elements())
		for j := range gradients[i] {
			gradients[i][j] = 1e-3
			if i == 0 {
				gradients[i][j] = 1e-9
			}
		}
	}
	for chunk := range uint32(shapes.Chunks()) {
		exam.Chunks = append(exam.Chunks, chunk)
	}
	if err := a.trainer.fill(exam, gradients); err != nil {
		t.Fatal(err)
	}
	whole := norm(gradients)
	unit := float64(scale) * clipScale(whole, a.trainer.optimizer.config.ClipGradNorm)
	for i, chunk := range exam.Chunks {
		tensor, _, _ := shapes.Find(chunk)
		size := float64(shapes[tensor].Rows * shapes[tensor].Cols)
		want := 1e-3 * unit * math.Sqrt(size)
		if tensor == 0 {
			want = whole / math.Sqrt(float64(a.trainer.Elements())) / 128 * unit * math.Sqrt(size)
		}
		if got := exam.Usual[i]; math.Abs(got/want-1) > 1e-3 {
			t.Errorf("chunk %d of tensor %d: usual length %v, want %v", chunk, tensor, got, want)
		}
	}
}

// TestAuditsPassWhoMissedSteps, as who verified in them.
func TestAuditsPassWhoMissedSteps(t *testing.T) {
	a := newAudited(t, 1, true, func(*Options) {})
	chunks := allChunks(a.trainer.Shapes())
	previous := uint32(0)
	for step := uint32(1); step <= 9; step++ {
		if step%4 > 1 {
			a.waiting = append(a.waiting, Applied{Step: step})
			a.settle()
			continue
		}
		batch := toyBatch(uint64(step)*4, uint64(step)*4+4)
		payload := a.step(step, batch, step != 5)
		opening, err := a.trainer.Open(step, chunks)
		if err != nil {
			t.Fatal(err)
		}
		if opening.Previous != previous {
			t.Errorf("step %d goes on from step %d, want %d", step, opening.Previous, previous)
		}
		if report := a.audit(step, batch, payload, opening); report.Judge(testLimits) != audit.Passed {
			t.Errorf("step %d: fault %v, error %v", step, report.Fault, report.Error)
		}
		a.settle()
		previous = step
	}
}
