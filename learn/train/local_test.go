package train

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/record/config"
)

func toyLocalSteps() *config.LocalSteps {
	return &config.LocalSteps{
		InnerSteps: 4, Betas: [2]float64{0.9, 0.99}, Eps: 1e-8, WeightDecay: 0.01, ClipGradNorm: 1,
		OuterLR: 1, CompressionTopK: 16, CompressionChunk: 16, ValueBits: 2, ErrorDecay: 1,
	}
}

func newLocalTrainer(t testing.TB, change ...func(o *Options)) *Trainer {
	t.Helper()
	o := toyOptions(t)
	o.Optimizer = config.Optimizer{LocalSteps: toyLocalSteps()}
	for _, c := range change {
		c(&o)
	}
	trainer, err := NewLocal(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	})
	return trainer
}

// eachInner runs a test with each optimizer that can make the steps of a round.
func eachInner(t *testing.T, test func(t *testing.T, inner func(*Options))) {
	for _, optimizer := range []string{"", config.Muon} {
		t.Run(cmp.Or(optimizer, config.AdamWName), func(t *testing.T) {
			test(t, func(o *Options) { o.Optimizer.LocalSteps.InnerOptimizer = optimizer })
		})
	}
}

// localRound makes members train the batches of a step, and all trainers apply the results.
func localRound(t *testing.T, step uint32, members []*Trainer, all []*Trainer) (loss float64) {
	t.Helper()
	var payloads [][]byte
	for i, member := range members {
		at := (uint64(step)*2 + uint64(i)) * 8
		payload, mean, err := member.Train(t.Context(), step, toyBatch(at, at+8), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range all {
			if err := other.Verify(payload, step, assign.BatchID{Start: at, End: at + 8}, member.key); err != nil {
				t.Fatal(err)
			}
		}
		if len(payload) > member.MaxResultSize() {
			t.Errorf("%d bytes, MaxResultSize is %d", len(payload), member.MaxResultSize())
		}
		payloads, loss = append(payloads, payload), loss+mean/float64(len(members))
	}
	for _, member := range all {
		if err := member.Apply(t.Context(), step, payloads, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	return loss
}

// TestLocalStepsLearn checks that two members that train and a third that only applies learn the
// same model, bit for bit.
func TestLocalStepsLearn(t *testing.T) { eachInner(t, testLocalStepsLearn) }

func testLocalStepsLearn(t *testing.T, inner func(*Options)) {
	members := []*Trainer{newLocalTrainer(t, inner), newLocalTrainer(t, inner, func(o *Options) { o.TrainerID = [32]byte{2} })}
	all := append([]*Trainer{newLocalTrainer(t, inner, func(o *Options) { o.TrainerID = [32]byte{3} })}, members...)
	first := localRound(t, 1, members, all)
	var last float64
	for step := uint32(2); step <= 30; step++ {
		last = localRound(t, step, members, all)
	}
	if !(last < 0.6*first) {
		t.Errorf("the loss went from %v to %v", first, last)
	}
	for i, member := range all {
		if digest(t, member) != digest(t, all[0]) {
			t.Errorf("member %d has another model", i)
		}
	}
}

// TestLocalStepsOfStackedExperts checks that two members that train models with stacked experts
// learn the same model.
func TestLocalStepsOfStackedExperts(t *testing.T) {
	for name, text := range map[string]string{"gpt_oss": toyGPTOSS, "llama4": toyLlama4} {
		t.Run(name, func(t *testing.T) {
			eachInner(t, func(t *testing.T, inner func(*Options)) {
				stacked := func(o *Options) { o.Model = snapshotOf(t, text) }
				members := []*Trainer{newLocalTrainer(t, inner, stacked), newLocalTrainer(t, inner, stacked, func(o *Options) { o.TrainerID = [32]byte{2} })}
				first, last := localRound(t, 1, members, members), 0.0
				for step := uint32(2); step <= 12; step++ {
					last = localRound(t, step, members, members)
				}
				if !(last < 0.8*first) {
					t.Errorf("the loss went from %v to %v", first, last)
				}
				if digest(t, members[0]) != digest(t, members[1]) {
					t.Error("the members differ")
				}
			})
		})
	}
}

// TestLocalTrainingMovesNothing checks that training leaves the weights unchanged, whether it
// succeeds, fails, or its round does not start. In the latter two cases the unsent residual is
// unchanged too.
func TestLocalTrainingMovesNothing(t *testing.T) { eachInner(t, testLocalTrainingMovesNothing) }

func testLocalTrainingMovesNothing(t *testing.T, inner func(*Options)) {
	trainer, untouched := newLocalTrainer(t, inner), newLocalTrainer(t, inner)
	before := digest(t, trainer)
	never := errors.New("the round does not come")
	if _, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 8), func(context.Context) error { return never }); !errors.Is(err, never) {
		t.Errorf("error %v", err)
	}
	bad := toyBatch(0, 8)
	bad.Sequences[7][3] = 1 << 20
	if _, _, err := trainer.Train(t.Context(), 1, bad, nil); !errors.Is(err, errTokens) {
		t.Errorf("error %v", err)
	}
	if digest(t, trainer) != before || norm(unsentOf(trainer)) != 0 {
		t.Error("a training that failed left something")
	}
	if _, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 8), nil); err != nil {
		t.Fatal(err)
	}
	if digest(t, trainer) != before || norm(unsentOf(trainer)) == 0 {
		t.Error("a training moved weights, or left nothing to send")
	}
	if _, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 8), nil); !errors.Is(err, errStep) {
		t.Errorf("a second result of a step: error %v", err)
	}
	if err := trainer.Apply(t.Context(), 1, nil, nil, false); err != nil {
		t.Fatal(err)
	}
	for i, w := range trainer.weights() {
		if !slices.Equal(w, untouched.weights()[i]) {
			t.Error("no result at all moved the weights")
		}
	}
}

// TestUncountedLocalStepsAreGivenBack checks that a result that does not count returns to the
// residual, to be sent again.
func TestUncountedLocalStepsAreGivenBack(t *testing.T) {
	trainer := newLocalTrainer(t)
	if _, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 8), nil); err != nil {
		t.Fatal(err)
	}
	left := norm(unsentOf(trainer))
	if err := trainer.Apply(t.Context(), 1, nil, nil, false); err != nil {
		t.Fatal(err)
	}
	if back := norm(unsentOf(trainer)); !(back > left) || len(trainer.local().residual.sent) != 0 {
		t.Errorf("%v was left, %v is there again", left, back)
	}
}

// TestLocalStepsGoOn checks that a member that restarts with its optimizer state sends the same
// bytes as a member that never stopped. The state that LendOptimizerState returns for writing is
// not a copy, and outlives the trainer.
func TestLocalStepsGoOn(t *testing.T) { eachInner(t, testLocalStepsGoOn) }

func testLocalStepsGoOn(t *testing.T, inner func(*Options)) {
	momentum := func(o *Options) { o.Optimizer.LocalSteps.OuterMomentum = 0.5 }
	stays, goes := newLocalTrainer(t, inner, momentum), newLocalTrainer(t, inner, momentum)
	for step := uint32(1); step <= 3; step++ {
		localRound(t, step, []*Trainer{stays}, []*Trainer{stays})
		localRound(t, step, []*Trainer{goes}, []*Trainer{goes})
	}
	snapshot, err := goes.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	state, err := goes.OptimizerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lent, err := goes.LendOptimizerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	means, err := goes.local().rounds.inner.all()
	if err != nil {
		t.Fatal(err)
	}
	if unsafe.Pointer(unsafe.SliceData(lent.Tensors[0].Data)) != unsafe.Pointer(&means[0][0]) {
		t.Error("the shared state is a copy")
	}
	if err := goes.Close(); err != nil {
		t.Fatal(err)
	}
	path, copied := filepath.Join(t.TempDir(), OptimizerFile), filepath.Join(t.TempDir(), OptimizerFile)
	if err := errors.Join(lent.Write(path), state.Write(copied)); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(copied)
	if got, failed := os.ReadFile(path); err != nil || failed != nil || !bytes.Equal(got, want) {
		t.Errorf("the shared state differs from the copy: %v, %v", err, failed)
	}
	again := newLocalTrainer(t, inner, momentum, func(o *Options) { o.Model = snapshot })
	if state, err = ReadOptimizerState(path); err != nil {
		t.Fatal(err)
	}
	if err := again.SetOptimizerState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if want, _, err = stays.Train(t.Context(), 4, toyBatch(0, 8), nil); err != nil {
		t.Fatal(err)
	}
	got, _, err := again.Train(t.Context(), 4, toyBatch(0, 8), nil)
	if err != nil || string(got) != string(want) {
		t.Errorf("it continues with another result, error %v", err)
	}
	if _, err := again.OptimizerState(t.Context()); !errors.Is(err, errStep) {
		t.Errorf("saved with a result that waits: error %v", err)
	}
	other := state
	other.Optimizer = "distro"
	if err := newLocalTrainer(t, inner, func(o *Options) { o.Model = snapshot }).SetOptimizerState(t.Context(), other); !errors.Is(err, errModel) {
		t.Errorf("the state of DisTrO: error %v", err)
	}
	if err := again.ResetOptimizer(t.Context()); err != nil || norm(unsentOf(again)) != 0 || again.local().rounds.inner.updates != 0 {
		t.Errorf("reset: %v, %v left", err, norm(unsentOf(again)))
	}
}

// TestLocalStepsAtALag checks that with an apply_lag of 2, a round can be trained before the
// results of the previous round are applied. It starts from the current weights, moved by the
// member's waiting result, and the member sends how far the weights moved from there.
func TestLocalStepsAtALag(t *testing.T) {
	trainer := newLocalTrainer(t, func(o *Options) { o.Optimizer.LocalSteps.ApplyLag = 2 })
	if trainer.ApplyLag() != 2 {
		t.Fatal("no lag")
	}
	var waiting [][]byte
	for step := uint32(1); step <= 4; step++ {
		payload, _, err := trainer.Train(t.Context(), step, toyBatch(uint64(step)*8, uint64(step)*8+8), nil)
		if err != nil {
			t.Fatal(err)
		}
		if waiting = append(waiting, payload); step == 1 {
			continue
		}
		if err := trainer.Apply(t.Context(), step-1, waiting[:1], nil, true); err != nil {
			t.Fatal(err)
		}
		waiting = waiting[1:]
	}
	if len(trainer.local().residual.sent) != 1 {
		t.Errorf("%d results wait", len(trainer.local().residual.sent))
	}
}

// TestLocalStepsGoOnFromTheirOwn checks a run with a single member. With an apply_lag of 2, the
// weights equal the weights with a lag of 1 except for rounding, because each round starts from the
// member's previous result. In an audited run a round does not start there, and the weights differ.
func TestLocalStepsGoOnFromTheirOwn(t *testing.T) {
	lead := func(lag uint8, audited bool) [][]float32 {
		trainer := newLocalTrainer(t, func(o *Options) {
			c := o.Optimizer.LocalSteps
			c.ApplyLag = lag
			if o.Audited = audited; audited {
				c.ErrorDecay = 0.95
			}
		})
		var waiting [][]byte
		const steps = 6
		for step := uint32(1); step <= steps; step++ {
			before := digest(t, trainer)
			payload, _, err := trainer.Train(t.Context(), step, toyBatch(uint64(step)*8, uint64(step)*8+8), nil)
			if err != nil {
				t.Fatal(err)
			}
			if digest(t, trainer) != before {
				t.Errorf("step %d has moved the common weights", step)
			}
			waiting = append(waiting, payload)
			for ; len(waiting) >= int(lag) || step == steps && len(waiting) > 0; waiting = waiting[1:] {
				if err := trainer.Apply(t.Context(), step+1-uint32(len(waiting)), waiting[:1], nil, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		var weights [][]float32
		for _, w := range trainer.weights() {
			weights = append(weights, slices.Clone(w))
		}
		return weights
	}
	apart := func(a, b [][]float32) (far float64) {
		for i := range a {
			far = max(far, widest(a[i], b[i]))
		}
		return far
	}
	together := lead(1, false)
	own, without := apart(lead(2, false), together), apart(lead(2, true), lead(1, true))
	t.Logf("%g apart with the own result, %g without", own, without)
	if own > 1e-5 || without < 1e-3 {
		t.Errorf("lag 2 leads %g from lag 1, %g without its own result", own, without)
	}
}

func TestLocalResultsRefused(t *testing.T) {
	trainer := newLocalTrainer(t)
	payload, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 8), nil)
	if err != nil {
		t.Fatal(err)
	}
	id := assign.BatchID{Start: 0, End: 8}
	if err := trainer.Verify(payload, 2, id, trainer.key); !errors.Is(err, ErrResult) {
		t.Errorf("of another step: error %v", err)
	}
	if err := trainer.Verify(payload[:len(payload)-1], 1, id, trainer.key); !errors.Is(err, ErrResult) {
		t.Errorf("cut: error %v", err)
	}
	distros := newTestTrainer(t)
	of, _, err := distros.Train(t.Context(), 1, toyBatch(0, 8), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.Verify(of, 1, id, trainer.key); !errors.Is(err, ErrResult) {
		t.Errorf("of DisTrO: error %v", err)
	}
	if err := distros.Verify(payload, 1, id, trainer.key); !errors.Is(err, ErrResult) {
		t.Errorf("to DisTrO: error %v", err)
	}
	before := digest(t, trainer)
	if err := trainer.Apply(t.Context(), 1, [][]byte{payload, payload}, nil, true); !errors.Is(err, ErrResult) || digest(t, trainer) != before {
		t.Errorf("the same result twice: error %v", err)
	}
}

func TestLocalOptionsRefused(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"error decay of an audited run": func(o *Options) { o.Audited = true },
		"outer momentum of an audited run": func(o *Options) {
			o.Audited, o.Optimizer.LocalSteps.ErrorDecay, o.Optimizer.LocalSteps.OuterMomentum = true, 0.95, 0.5
		},
		"distro":     func(o *Options) { *o = toyOptions(t) },
		"no steps":   func(o *Options) { o.Optimizer.LocalSteps.InnerSteps = 0 },
		"no values":  func(o *Options) { o.Optimizer.LocalSteps.ValueBits = 0 },
		"outer rate": func(o *Options) { o.Optimizer.LocalSteps.OuterLR = 3 },
		"betas":      func(o *Options) { o.Optimizer.LocalSteps.Betas[1] = 1 },
		"chunk":      func(o *Options) { o.Optimizer.LocalSteps.CompressionChunk = 999 },
	} {
		o := toyOptions(t)
		o.Optimizer = config.Optimizer{LocalSteps: toyLocalSteps()}
		change(&o)
		if trainer, err := NewLocal(t.Context(), o); err == nil {
			t.Errorf("%s: a trainer was made", name)
			_ = trainer.Close()
		}
	}
}

// TestStepsOfABatch checks that every sequence is in exactly one step, and that no step is empty.
func TestStepsOfABatch(t *testing.T) {
	batch := toyBatch(5, 12)
	parts := cutSteps(batch, 3)
	at := batch.ID.Start
	for _, part := range parts {
		if part.ID.Start != at || part.ID.Len() != uint64(len(part.Sequences)) || part.ID.Len() < 2 {
			t.Errorf("part %v with %d sequences", part.ID, len(part.Sequences))
		}
		at = part.ID.End
	}
	if len(parts) != 3 || at != batch.ID.End {
		t.Errorf("%d parts up to %d", len(parts), at)
	}
	for share := uint64(1); share <= 9; share++ { // a slow member has a small share
		for steps := uint64(1); steps <= 10; steps++ {
			if parts := cutSteps(toyBatch(0, share), steps); uint64(len(parts)) != min(share, steps) {
				t.Errorf("%d parts of %d sequences, want %d", len(parts), share, min(share, steps))
			}
		}
	}
	for _, sequence := range batch.Sequences {
		labels := make([]int32, len(sequence))
		for i := range labels {
			labels[i] = data.IgnoreLabel
		}
		batch.Labels = append(batch.Labels, labels)
	}
	if parts := cutSteps(batch, 3); len(parts) != 1 || len(parts[0].Sequences) != 7 {
		t.Errorf("of nothing to learn: %v", parts)
	}
	batch.Labels[6][4] = 7
	if parts := cutSteps(batch, 3); len(parts) != 1 || parts[0].ID.End != batch.ID.End || len(parts[0].Labels) != len(parts[0].Sequences) {
		t.Errorf("of one token: %v", parts)
	}
}
