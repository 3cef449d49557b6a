package train

import (
	"context"
	"errors"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"weak"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/record/config"
)

// auditedLocal is a run with a trainer of local steps and a verifier that uses other micro-batches.
type auditedLocal struct {
	t                 *testing.T
	trainer, verifier *Trainer
	roots             map[uint32][32]byte
	newest            uint32          // step of the newest result that other members hold
	applied           []audit.Applied // newest first
	waiting           []audit.Applied
	shaken            bool
	tamper            func() // changes the weights after the local steps; nil: no change
	chunks            []uint32
}

func newAuditedLocal(t *testing.T, change ...func(o *Options)) *auditedLocal {
	both := func(o *Options) {
		o.Audited = true
		o.Model = snapshotOf(t, splitConfig)
		o.Optimizer.LocalSteps.ErrorDecay = 0.95
	}
	return &auditedLocal{
		t: t, roots: map[uint32][32]byte{},
		trainer: newLocalTrainer(t, append([]func(*Options){both, func(o *Options) { o.MicroBatch = 1 }}, change...)...),
		verifier: newLocalTrainer(t, append([]func(*Options){both, func(o *Options) {
			o.TrainerID = [32]byte{2}
			o.MicroBatch = 4
		}}, change...)...),
	}
}

// round trains a round, opens it and finalizes it. cheat changes the batch that is trained; nil: no
// change.
func (a *auditedLocal) round(step uint32, batch data.Batch, held bool, cheat func(data.Batch) data.Batch) (payload []byte, opening audit.Opening) {
	a.t.Helper()
	trained := batch
	if cheat != nil {
		trained = cheat(batch)
	}
	payload, _, err := a.trainer.Train(a.t.Context(), step, trained, func(context.Context) error {
		if a.tamper != nil {
			a.tamper()
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	header, _, err := a.trainer.Decode(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	if header.Previous != a.newest || header.Precision != audit.F32.Code() {
		a.t.Errorf("step %d: header %+v, want it to continue from %d", step, header, a.newest)
	}
	if opening, err = a.trainer.Open(step, a.opened()); err != nil {
		a.t.Fatal(err)
	}
	if err := a.trainer.SetAttested(step, held); err != nil {
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

func (a *auditedLocal) opened() []uint32 {
	if a.chunks != nil {
		return a.chunks
	}
	return allChunks(a.trainer.Shapes())
}

// applyOldest applies the oldest waiting round, if it is due.
func (a *auditedLocal) applyOldest() {
	a.t.Helper()
	if uint32(len(a.waiting)) < a.trainer.ApplyLag() {
		return
	}
	now := a.waiting[0]
	a.waiting = a.waiting[1:]
	for _, member := range []*Trainer{a.trainer, a.verifier} {
		if err := member.Apply(a.t.Context(), now.Step, now.Payloads, nil, member == a.trainer && len(now.Payloads) > 0); err != nil {
			a.t.Fatal(err)
		}
	}
	a.applied = slices.Insert(a.applied, 0, now)
}

// audit makes the verifier check a round.
func (a *auditedLocal) audit(step uint32, batch data.Batch, payload []byte, opening audit.Opening) audit.Report {
	a.t.Helper()
	before := digest(a.t, a.verifier)
	reference, err := a.verifier.Recompute(a.t.Context(), a.question(step), batch)
	if err != nil {
		a.t.Fatal(err)
	}
	if digest(a.t, a.verifier) != before {
		a.t.Error("recomputing changed the verifier's model")
	}
	return a.compare(reference, payload, opening)
}

// question returns the request to recompute a round from the current weights.
func (a *auditedLocal) question(step uint32) audit.Recomputation {
	x := audit.Recomputation{Step: step, Trainer: [32]byte{1}, Chunks: a.opened(), Shaken: a.shaken}
	x.Weights = step - min(step, a.trainer.ApplyLag())
	for _, applied := range a.applied {
		if applied.Step > x.Weights {
			x.Applied = append(x.Applied, applied)
		}
	}
	return x
}

// compare checks an opening against the verifier's recomputation.
func (a *auditedLocal) compare(reference *audit.Reference, payload []byte, opening audit.Opening) audit.Report {
	a.t.Helper()
	header, results, err := a.verifier.Decode(payload)
	if err != nil {
		a.t.Fatal(err)
	}
	claim := audit.Claim{Opening: opening, Result: results, Header: header, PreviousRoot: a.roots[opening.Previous]}
	if !claim.Binds(a.verifier.Shapes(), a.opened()) {
		a.t.Errorf("step %d: the opening does not lead to the roots", opening.Step)
	}
	return reference.Check(claim)
}

// TestAuditsPassHonestLocalSteps checks that audits pass honest rounds, attested or not, at both
// lags, immediately and some rounds later.
func TestAuditsPassHonestLocalSteps(t *testing.T) { eachInner(t, testAuditsPassHonestLocalSteps) }

func testAuditsPassHonestLocalSteps(t *testing.T, inner func(*Options)) {
	for _, lag := range []uint8{1, 2} {
		a := newAuditedLocal(t, inner, func(o *Options) { o.Optimizer.LocalSteps.ApplyLag = lag })
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
				if outcome := report.Judge(audit.LocalLimits); outcome != audit.Passed {
					t.Errorf("lag %d, step %d, audited in %d: %v, fault %v, error %v", lag, late, step, outcome, report.Fault, report.Error)
				}
			}
			a.applyOldest()
		}
		t.Logf("lag %d: largest error %.2g, of a chunk %.2g", lag, worst, chunk)
	}
}

// TestAuditsPassAConvergedModel checks that audits pass a model that has nothing more to learn. Its
// gradients are hardly more than rounding, but AdamW makes steps of the usual length from them.
func TestAuditsPassAConvergedModel(t *testing.T) { eachInner(t, testAuditsPassAConvergedModel) }

func testAuditsPassAConvergedModel(t *testing.T, inner func(*Options)) {
	a := newAuditedLocal(t, inner, func(o *Options) { o.LRSchedule.Constant.BaseLR = 4e-3 })
	type kept struct {
		payload []byte
		opening audit.Opening
	}
	var all []kept
	batch, worst, chunk := toyBatch(8, 16), 0.0, 0.0
	for step := uint32(1); step <= 90; step++ {
		payload, opening := a.round(step, batch, true, nil)
		if all = append(all, kept{payload, opening}); step%15 == 0 {
			for _, late := range []uint32{step, step - 12} {
				report := a.audit(late, batch, all[late-1].payload, all[late-1].opening)
				worst = max(worst, report.Error)
				for _, c := range report.Chunks {
					chunk = max(chunk, c.Error)
				}
				if outcome := report.Judge(audit.LocalLimits); outcome != audit.Passed {
					t.Errorf("step %d, audited in %d: %v, fault %v, error %v", late, step, outcome, report.Fault, report.Error)
				}
			}
		}
		a.applyOldest()
	}
	t.Logf("largest error %.2g, of a chunk %.2g", worst, chunk)
}

// TestAuditsPassTheSmallestRates checks that audits pass at learning rates as small as the rounding
// of a weight. An honest step may then be longer than AdamW or Muon would make it.
func TestAuditsPassTheSmallestRates(t *testing.T) { eachInner(t, testAuditsPassTheSmallestRates) }

func testAuditsPassTheSmallestRates(t *testing.T, inner func(*Options)) {
	for _, rate := range []float64{1e-9, 3e-9, 1e-8, 1e-7} {
		a := newAuditedLocal(t, inner, func(o *Options) {
			o.LRSchedule.Constant.BaseLR, o.Optimizer.LocalSteps.InnerSteps, o.Optimizer.LocalSteps.WeightDecay = rate, 1, 0
		})
		for step := uint32(1); step <= 4; step++ {
			a.chunks = audit.Chunks([32]byte{byte(step)}, step, [32]byte{1}, a.trainer.Shapes(), audit.DefaultChunks, nil)
			batch := toyBatch(uint64(step)*16, uint64(step)*16+16)
			payload, opening := a.round(step, batch, true, nil)
			report := a.audit(step, batch, payload, opening)
			if outcome := report.Judge(audit.LocalLimits); outcome != audit.Passed {
				t.Errorf("rate %v, step %d: %v, fault %v, error %v", rate, step, outcome, report.Fault, report.Error)
			}
			a.applyOldest()
		}
	}
}

// TestAuditsPassRoundingDifferences checks audits at a learning rate so large that the model learns
// nothing, and a difference of one bit has a large effect within a round. An audit passes only if
// it measures this effect, with Shaken.
func TestAuditsPassRoundingDifferences(t *testing.T) {
	a := newAuditedLocal(t, func(o *Options) {
		o.LRSchedule.Constant.BaseLR, o.Optimizer.LocalSteps.InnerSteps = 0.1, 32
	})
	for step := uint32(1); step <= 3; step++ {
		batch := toyBatch(uint64(step)*64, uint64(step)*64+64)
		payload, opening := a.round(step, batch, true, nil)
		for _, a.shaken = range []bool{false, true} {
			report := a.audit(step, batch, payload, opening)
			if outcome := report.Judge(audit.LocalLimits); (outcome == audit.Passed) != a.shaken {
				t.Errorf("step %d, shaken %v: %v, fault %v, error %v", step, a.shaken, outcome, report.Fault, report.Error)
			}
		}
		a.applyOldest()
	}
}

// TestLocalAttacks checks that audits find a result that does not match the movement of the weights
// by the local steps. The difference may arise in any step, and the unsent residual may be changed
// in any way.
func TestLocalAttacks(t *testing.T) { eachInner(t, testLocalAttacks) }

func testLocalAttacks(t *testing.T, inner func(*Options)) {
	const at = 4 // the attacked round
	one := func(step int) func(data.Batch) data.Batch {
		return func(batch data.Batch) data.Batch {
			batch.Sequences = slices.Clone(batch.Sequences)
			for i := range batch.Sequences {
				if i*4/len(batch.Sequences) == step {
					batch.Sequences[i] = slices.Clone(batch.Sequences[i])
					slices.Reverse(batch.Sequences[i])
				}
			}
			return batch
		}
	}
	// added returns an attack that adds a function of the unsent residual to the distance that the
	// weights moved.
	added := func(change func(float32) float32) func(*Trainer) {
		return func(trainer *Trainer) {
			for i, tensor := range trainer.weights() {
				for j := range tensor {
					tensor[j] -= change(unsentOf(trainer)[i][j])
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		batch  func(data.Batch) data.Batch
		tamper func(*Trainer)
		sent   func([]codec.TensorResult)
		fault  audit.Fault
		byMuon audit.Fault // fault with Muon, whose steps are further from the common bound
		passes bool
	}{
		{name: "nothing", passes: true},
		{name: "another batch in the first step", batch: one(0)},
		{name: "another batch in the second step", batch: one(1)},
		{name: "another batch in the last step", batch: one(3)},
		{name: "turned what was not sent", tamper: added(func(v float32) float32 { return -1.9 * v }), fault: audit.FaultLength},
		{name: "forgot what was not sent", tamper: added(func(v float32) float32 { return -0.95 * v })},
		{name: "added a little", tamper: added(func(float32) float32 { return 1e-4 })},
		{name: "added much", tamper: added(func(float32) float32 { return 1 }), fault: audit.FaultLength, byMuon: audit.FaultLength},
		{name: "sent another sign", fault: audit.FaultSent, byMuon: audit.FaultSent, sent: func(r []codec.TensorResult) { r[0].Values[0] *= -1 }},
		{name: "sent another unit", fault: audit.FaultSent, byMuon: audit.FaultSent, sent: func(r []codec.TensorResult) { r[0].Units[0]-- }},
	} {
		a := newAuditedLocal(t, inner)
		if a.trainer.local().residual.config.InnerOptimizer == config.Muon {
			c.fault = c.byMuon
		}
		for step := uint32(1); step < at; step++ {
			a.round(step, toyBatch(uint64(step)*8, uint64(step)*8+8), true, nil)
			a.applyOldest()
		}
		if c.tamper != nil {
			a.tamper = func() { c.tamper(a.trainer) }
		}
		batch := toyBatch(at*8, at*8+8)
		payload, opening := a.round(at, batch, true, c.batch)
		if c.sent != nil {
			header, results, err := codec.DecodeLevels(payload, a.trainer.local().residual.results, 2)
			if err != nil {
				t.Fatal(err)
			}
			c.sent(results)
			if payload, err = codec.EncodeLevels(header, a.trainer.local().residual.results, 2, results); err != nil {
				t.Fatal(err)
			}
		}
		for _, a.shaken = range []bool{false, true} {
			report := a.audit(at, batch, payload, opening)
			if outcome := report.Judge(audit.LocalLimits); (outcome == audit.Passed) != c.passes || report.Fault != c.fault {
				t.Errorf("%s, shaken %v: %v, fault %v, error %v", c.name, a.shaken, outcome, report.Fault, report.Error)
			} else {
				t.Logf("%s, shaken %v: %v, fault %v, error %.3g", c.name, a.shaken, outcome, report.Fault, report.Error)
			}
		}
	}
}

// stopping is a context that is cancelled after a number of calls of Err.
type stopping struct {
	context.Context
	looks int
}

func (s *stopping) Err() error {
	if s.looks--; s.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestReplaysGoOn checks that a replay that is stopped repeatedly continues from its last step and
// gets the same bits. It does not affect the trainer's work between the stops.
func TestReplaysGoOn(t *testing.T) {
	eachInner(t, func(t *testing.T, inner func(*Options)) { testReplaysGoOn(t, inner) })
}

// TestReplaysGoOnOnADevice is TestReplaysGoOn for members whose steps move weights on a device. Their replays do too.
func TestReplaysGoOnOnADevice(t *testing.T) {
	eachInner(t, func(t *testing.T, inner func(*Options)) {
		kernels, _ := withKernels(t, nil)
		testReplaysGoOn(t, inner, onDevices(1), kernels)
	})
}

func testReplaysGoOn(t *testing.T, with ...func(*Options)) {
	a := newAuditedLocal(t, with...)
	batch := toyBatch(8, 16)
	a.round(1, batch, true, nil)
	trained := uint32(1)
	for _, shaken := range []bool{false, true} {
		x := audit.Recomputation{Step: 1, Trainer: [32]byte{1}, Chunks: a.opened(), Shaken: shaken}
		want, err := a.verifier.Recompute(t.Context(), x, batch)
		if err != nil {
			t.Fatal(err)
		}
		before, stops := digest(t, a.verifier), 0
		var got *audit.Reference
		for got == nil {
			if got, err = a.verifier.Recompute(&stopping{t.Context(), 12}, x, batch); err != nil {
				if stops++; stops > 20 || !errors.Is(err, context.Canceled) {
					t.Fatalf("after %d stops: %v", stops, err)
				}
			}
			if digest(t, a.verifier) != before {
				t.Fatal("a replay that was stopped changed the model")
			}
			trained++
			if _, _, err := a.verifier.Train(t.Context(), trained, toyBatch(80, 88), nil); err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(got, want) || stops == 0 {
			t.Errorf("shaken %v: after %d stops it came elsewhere", shaken, stops)
		}
		if a.verifier.keeper.kept != nil {
			t.Error("something is still kept")
		}
		if onDevice := a.verifier.parallel.home() != nil; onDevice != (len(with) > 1) || onDevice && a.verifier.fresh == a.verifier.changes {
			t.Errorf("shaken %v: on a device: %v, or the replay moved weights on the CPU", shaken, onDevice)
		}
	}
}

// TestReplaysGoOnWhileRoundsAreApplied checks that a replay that is stopped repeatedly gets the
// right result even if rounds are applied after its start. The verifier recomputes the initial
// weights of the replay from newer weights.
func TestReplaysGoOnWhileRoundsAreApplied(t *testing.T) {
	eachInner(t, func(t *testing.T, inner func(*Options)) {
		kernels, _ := withKernels(t, nil)
		testReplaysGoOnWhileRoundsAreApplied(t, inner)
		testReplaysGoOnWhileRoundsAreApplied(t, inner, onDevices(1), kernels)
	})
}

func testReplaysGoOnWhileRoundsAreApplied(t *testing.T, with ...func(*Options)) {
	a := newAuditedLocal(t, with...)
	batch, now := toyBatch(8, 16), uint32(1)
	payload, opening := a.round(now, batch, true, nil)
	a.applyOldest()
	for _, a.shaken = range []bool{false, true} {
		stops := 0
		var reference *audit.Reference
		for reference == nil {
			var err error
			if reference, err = a.verifier.Recompute(&stopping{t.Context(), 12}, a.question(1), batch); err != nil {
				if stops++; stops > 20 || !errors.Is(err, context.Canceled) {
					t.Fatalf("after %d stops: %v", stops, err)
				}
				now++
				a.round(now, toyBatch(uint64(now)*8, uint64(now)*8+8), true, nil)
				a.applyOldest()
			}
		}
		if report := a.compare(reference, payload, opening); report.Judge(audit.LocalLimits) != audit.Passed || stops == 0 {
			t.Errorf("shaken %v, after %d stops: %v, fault %v, error %v", a.shaken, stops, report.Judge(audit.LocalLimits), report.Fault, report.Error)
		}
	}
}

// TestQuotients checks that AdamW's steps stay within their bound. The bound of the first step is
// 1, which a step reaches.
func TestQuotients(t *testing.T) {
	if got := quotients([2]float64{0.9, 0.99}, 1); math.Abs(got-1) > 1e-12 {
		t.Errorf("the first step is bounded by %v, want 1", got)
	}
	for _, betas := range [][2]float64{{0.9, 0.99}, {0.9, 0.999}, {0, 0.9}, {0.5, 0.9}} {
		rapid.Check(t, func(t *rapid.T) {
			m, v, moved, first, second := 0.0, 0.0, 0.0, 1.0, 1.0
			steps := rapid.IntRange(1, 30).Draw(t, "steps")
			for range steps {
				g := rapid.SampledFrom([]float64{0, 1, -1, 1e-6, 1e3, 3}).Draw(t, "gradient")
				m, v = betas[0]*m+(1-betas[0])*g, betas[1]*v+(1-betas[1])*g*g
				first, second = first*betas[0], second*betas[1]
				if v > 0 {
					moved += m / (1 - first) / math.Sqrt(v/(1-second))
				}
			}
			if limit := quotients(betas, steps); math.Abs(moved) > limit*(1+1e-9) {
				t.Fatalf("betas %v: %d steps come to %v, the bound is %v", betas, steps, moved, limit)
			}
		})
	}
}

// TestReplaysGoOnOnTheirBatchOnly checks that a replay of one batch, stopped half way, is not
// continued with another batch.
func TestReplaysGoOnOnTheirBatchOnly(t *testing.T) {
	a := newAuditedLocal(t)
	batch, other := toyBatch(8, 16), toyBatch(8, 16)
	other.Sequences = slices.Clone(other.Sequences)
	slices.Reverse(other.Sequences)
	a.round(1, batch, true, nil)
	x := audit.Recomputation{Step: 1, Trainer: [32]byte{1}, Chunks: a.opened()}
	want, err := a.verifier.Recompute(t.Context(), x, batch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.verifier.Recompute(&stopping{t.Context(), 12}, x, other); !errors.Is(err, context.Canceled) || stepsKept(a.verifier) == 0 {
		t.Fatalf("it was not stopped half way: %v", err)
	}
	got, err := a.verifier.Recompute(t.Context(), x, batch)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("it continued from the steps of another batch")
	}
}

// TestStoppedReplaysKeepNoResults checks that a stopped replay keeps only its own data. To
// continue, it is given the results that were applied since its round again.
func TestStoppedReplaysKeepNoResults(t *testing.T) {
	a := newAuditedLocal(t)
	batch := toyBatch(8, 16)
	a.round(1, batch, true, nil)
	a.applyOldest()
	x := a.question(1)
	x.Applied[0].Payloads = [][]byte{slices.Clone(x.Applied[0].Payloads[0])}
	kept := weak.Make(&x.Applied[0].Payloads[0][0])
	if _, err := a.verifier.Recompute(&stopping{t.Context(), 12}, x, batch); !errors.Is(err, context.Canceled) || a.verifier.keeper.kept == nil {
		t.Fatalf("it was not stopped half way: %v", err)
	}
	x.Applied = nil
	runtime.GC()
	if kept.Value() != nil {
		t.Error("a result that was applied is kept with it")
	}
	values, bytes := 0, a.verifier.keeper.kept.bytes
	state := a.verifier.keeper.kept.state.(*replay)
	for _, of := range slices.Concat(state.weights, state.means) {
		values += len(of)
	}
	if bytes != 4*uint64(values) {
		t.Errorf("%d values count as %d bytes", values, bytes)
	}
	if _, err := a.verifier.Recompute(t.Context(), a.question(1), batch); err != nil || a.verifier.keeper.kept != nil {
		t.Errorf("it did not continue: %v", err)
	}
	a.verifier.keeper.available = func() uint64 { return 2*bytes - 1 }
	if _, err := a.verifier.Recompute(&stopping{t.Context(), 12}, a.question(1), batch); !errors.Is(err, context.Canceled) || a.verifier.keeper.kept != nil {
		t.Errorf("without memory: error %v, kept: %v", err, a.verifier.keeper.kept != nil)
	}
}

// TestReplaysThatFailChangeNothing checks that a replay changes nothing if it cannot read an
// applied result, before its first step or after its last one.
func TestReplaysThatFailChangeNothing(t *testing.T) { eachInner(t, testReplaysThatFailChangeNothing) }

func testReplaysThatFailChangeNothing(t *testing.T, inner func(*Options)) {
	a := newAuditedLocal(t, inner)
	batch := toyBatch(8, 16)
	payload, opening := a.round(1, batch, true, nil)
	a.applyOldest()
	for step := uint32(2); step <= 3; step++ {
		a.round(step, toyBatch(uint64(step)*8, uint64(step)*8+8), true, nil)
		a.applyOldest()
	}
	before := digest(t, a.verifier)
	fails := func(when string) {
		t.Helper()
		x := a.question(1)
		x.Applied[1].Payloads = [][]byte{payload[:len(payload)-1]}
		if _, err := a.verifier.Recompute(t.Context(), x, batch); !errors.Is(err, ErrResult) || a.verifier.keeper.kept != nil {
			t.Errorf("%s: error %v", when, err)
		}
		if digest(t, a.verifier) != before {
			t.Fatalf("%s: the model is another", when)
		}
	}
	fails("at first")
	if _, err := a.verifier.Recompute(&stopping{t.Context(), 12}, a.question(1), batch); !errors.Is(err, context.Canceled) || a.verifier.keeper.kept == nil {
		t.Fatalf("it was not stopped half way: %v", err)
	}
	fails("when it goes on")
	if report := a.audit(1, batch, payload, opening); report.Judge(audit.LocalLimits) != audit.Passed {
		t.Errorf("afterwards: fault %v, error %v", report.Fault, report.Error)
	}
}
