package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/train/schedule"
	"github.com/psyche-go/psyche/record/config"
)

// The tests of this file are named after known causes of divergence between replicas of a DisTrO
// run. README.md lists them.

func lookingAhead(o *Options) {
	c := *o.Optimizer.Distro
	c.Lookahead = true
	o.Optimizer.Distro = &c
	o.MicroBatch = 1
}

// TestLookaheadIsUndoneToTheBit checks that undoing a look-ahead restores the weights bit for bit.
// The trainer has a momentum, and weights of many magnitudes whose sums with a step are rounded.
func TestLookaheadIsUndoneToTheBit(t *testing.T) {
	trainer := newTestTrainer(t, lookingAhead)
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 4)); err != nil {
		t.Fatal(err)
	}
	for i, w := range trainer.weights() {
		for j := range w {
			w[j] *= float32(math.Pow(2, float64((i+j)%40-30)))
		}
	}
	before := copySlices(trainer.weights())
	back, err := trainer.distro().lookAhead(t.Context(), 2e-3)
	if err != nil {
		t.Fatal(err)
	}
	if sameBits(before, trainer.weights()) {
		t.Error("nothing was looked ahead to")
	}
	for _, w := range trainer.weights() {
		ahead(w, make([]float32, len(w)), 2e-3) // without momentum, weights do not move
	}
	if err := back(); err != nil || !sameBits(before, trainer.weights()) {
		t.Error("the look-ahead is not undone")
	}
	if _, _, err := trainer.Train(t.Context(), 2, toyBatch(4, 8), nil); err != nil {
		t.Fatal(err)
	}
	if !sameBits(before, trainer.weights()) {
		t.Error("a training changed the weights")
	}
}

func TestLookaheadGoesAgainstTheMomentum(t *testing.T) {
	weights := []float32{1, 1, 1, 1, 1}
	ahead(weights, []float32{-3, float32(math.Copysign(0, -1)), 0, 1e-40, 2}, 0.25)
	if want := []float32{1.25, 1, 1, 0.75, 0.75}; !slices.Equal(weights, want) {
		t.Errorf("weights %v, want %v", weights, want)
	}
}

func TestCancelledStepLeavesNoLookaheadApplied(t *testing.T) {
	trainer := newTestTrainer(t, lookingAhead)
	if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 4)); err != nil {
		t.Fatal(err)
	}
	before := digest(t, trainer)
	for left := range 4 {
		ctx := &cancelled{Context: t.Context(), left: left}
		if _, _, err := trainer.Train(ctx, 2, toyBatch(4, 8), nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("error = %v, want Canceled", err)
		}
		if digest(t, trainer) != before {
			t.Fatalf("cancelled at check %d: the weights have moved", left)
		}
	}
}

// TestLookaheadChangesTheGradient checks that the option has an effect.
func TestLookaheadChangesTheGradient(t *testing.T) {
	plain, ahead := newTestTrainer(t), newTestTrainer(t, lookingAhead)
	for step := uint32(1); step <= 2; step++ {
		want, _, err := plain.Train(t.Context(), step, toyBatch(0, 4), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := ahead.Train(t.Context(), step, toyBatch(0, 4), nil)
		if err != nil {
			t.Fatal(err)
		}
		if same := string(got) == string(want); same != (step == 1) { // no momentum at first
			t.Errorf("step %d: the same result: %t", step, same)
		}
		for _, trainer := range []*Trainer{plain, ahead} {
			if err := trainer.Apply(t.Context(), step, [][]byte{want}, nil, true); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestClientWithoutABatchDecaysWeightsAndClearsSentCoefficients checks that a member that misses a
// round has the same weights as a member that trained, and no sent coefficients pending.
func TestClientWithoutABatchDecaysWeightsAndClearsSentCoefficients(t *testing.T) {
	busy := newTestTrainer(t)
	idle := newTestTrainer(t, func(o *Options) { o.TrainerID = [32]byte{2} })
	train := func(trainer *Trainer, step uint32, start uint64) []byte {
		payload, _, err := trainer.Train(t.Context(), step, toyBatch(start, start+2), nil)
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	apply := func(step uint32, payloads ...[]byte) {
		for _, trainer := range []*Trainer{busy, idle} {
			if err := trainer.Apply(t.Context(), step, payloads, nil, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	apply(1, train(busy, 1, 0), train(idle, 1, 2))
	left := copySlices(momentumOf(idle.distro().optimizer))
	apply(2, train(busy, 2, 4))
	if digest(t, busy) != digest(t, idle) {
		t.Error("the member without a batch has other weights")
	}
	if len(idle.distro().optimizer.sent) != 0 || !sameBits(left, momentumOf(idle.distro().optimizer)) {
		t.Error("the sent coefficients are still pending, or were removed twice")
	}
	before := copySlices(idle.weights())
	apply(3) // no member trained
	factor := float32(1 - float64(float64(idle.rates.schedule.LR(3))*idle.distro().optimizer.config.WeightDecay))
	for i := range before {
		for j := range before[i] {
			before[i][j] *= factor
		}
	}
	if !sameBits(before, idle.weights()) {
		t.Error("a round without results does not decay the weights")
	}
}

func TestMomentumBeginsAsZeros(t *testing.T) {
	for range 3 { // memory that was used before may contain other values
		o := newTestOptimizer(t, testDistro())
		for _, delta := range momentumOf(o) {
			if slices.ContainsFunc(delta, func(v float32) bool { return v != 0 }) {
				t.Fatal("a new optimizer has a momentum")
			}
			for i := range delta {
				delta[i] = float32(math.NaN())
			}
		}
		if err := o.reset(); err != nil {
			t.Fatal(err)
		}
		for _, delta := range momentumOf(o) {
			if slices.ContainsFunc(delta, func(v float32) bool { return v != 0 }) {
				t.Fatal("a reset optimizer has a momentum")
			}
		}
	}
}

// TestSentCoefficientsAreRemovedOnceAtEveryLag compares the momentum with a momentum computed here.
// Sent coefficients are removed when they are sent, however late they are applied, and are not
// removed again at the end of an epoch.
func TestSentCoefficientsAreRemovedOnceAtEveryLag(t *testing.T) {
	const last = 6
	for lag := uint32(1); lag <= config.MaxApplyLag; lag++ {
		c := testDistro()
		c.ApplyLag = uint8(lag)
		o, shadow := newTestOptimizer(t, c), newTestOptimizer(t, c)
		momentum := momentumOf(shadow)
		for step := uint32(1); step <= last; step++ {
			gradients := randomSlices(uint64(step), 0.01)
			_, results, err := o.decode(encodeStep(t, o, step, gradients))
			if err != nil {
				t.Fatal(err)
			}
			taken := o.sent[step]
			for i := range momentum {
				for j := range momentum[i] {
					momentum[i][j] = 0.5*momentum[i][j] + 1e-2*gradients[i][j]
				}
				if err := shadow.kernel.AddBack(shadow.layouts[i], momentum[i], negative(taken[i])); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(results[i].Indices, taken[i].Indices) {
					t.Error("the removed coefficients differ from the sent ones")
				}
			}
			if step >= lag {
				finalizeStep(t, o, step-lag+1)
			}
			compareMomentum(t, momentumOf(o), momentum)
		}
		for step := last - lag + 2; step <= last; step++ { // the end of an epoch
			finalizeStep(t, o, step)
		}
		compareMomentum(t, momentumOf(o), momentum)
		if len(o.sent) != 0 {
			t.Errorf("lag %d: %d results are still waiting", lag, len(o.sent))
		}
	}
}

func finalizeStep(t *testing.T, o *optimizer, step uint32) {
	t.Helper()
	if _, waiting := o.sent[step]; !waiting {
		t.Errorf("step %d is not waiting", step)
	}
	if err := o.finalize(step, true); err != nil {
		t.Fatal(err)
	}
}

func negative(r codec.TensorResult) codec.TensorResult {
	n := codec.TensorResult{Counts: r.Counts, Indices: r.Indices, Values: slices.Clone(r.Values)}
	for i := range n.Values {
		n.Values[i] = -n.Values[i]
	}
	return n
}

func compareMomentum(t *testing.T, got, want [][]float32) {
	t.Helper()
	if worst := farthest(got, want); worst > 1e-8 {
		t.Errorf("momentum differs by %v", worst)
	}
}

// TestFirstStepOfAColdStartSendsNoSigns checks that a step at learning rate zero sends no
// coefficients. Every member would read the sign bit of a zero as +1.
func TestFirstStepOfAColdStartSendsNoSigns(t *testing.T) {
	trainer := newTestTrainer(t)
	if err := trainer.SetColdStart(t.Context(), 1, 10); err != nil {
		t.Fatal(err)
	}
	payload, _, err := trainer.Train(t.Context(), 1, toyBatch(0, 4), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, results, err := trainer.distro().optimizer.decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if slices.Max(r.Counts) != 0 {
			t.Errorf("tensor %d: sends %v coefficients of a momentum of zero", i, r.Counts)
		}
	}
}

func TestCosineDoesNotRiseAfterItsEnd(t *testing.T) {
	s, err := schedule.New(config.LRSchedule{Cosine: &config.CosineLR{BaseLR: 4e-4, WarmupSteps: 5, TotalSteps: 50, FinalLR: 4e-5}})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []uint32{50, 51, 75, 94, 95, 140, 1 << 20, math.MaxUint32} {
		if lr := s.LR(step); lr != 4e-5 {
			t.Errorf("step %d: learning rate %v, want 4e-5", step, lr)
		}
	}
}

// TestShapesComeFromTheOwnModel checks that a trainer refuses results whose bytes were made for
// tensors of other shapes, or for the same tensors in another order. Results do not contain shapes,
// so bytes that fit the trainer's shapes by chance are a valid result.
func TestShapesComeFromTheOwnModel(t *testing.T) {
	own := newTestOptimizer(t, testDistro())
	for _, shapes := range [][][]int64{
		{{24, 16}, {2, 16, 8}},
		{{24, 16}, {2, 16, 8}, {40}},
		{{16, 24, 1}, {2, 16, 8}, {10}},
		{{10}, {2, 16, 8}, {24, 16}},
		{{24, 16}, {2, 16, 8}, {10}, {1}},
	} {
		other, err := newOptimizer(testDistro(), shapes, 1)
		if err != nil {
			t.Fatal(err)
		}
		var gradients [][]float32
		for i, layout := range other.layouts {
			gradients = append(gradients, make([]float32, layout.Elements()))
			for j := range gradients[i] {
				gradients[i][j] = float32((i+j)%7) - 2.5
			}
		}
		payload := encodeStep(t, other, 1, gradients)
		if _, _, err := own.decode(payload); !errors.Is(err, ErrResult) {
			t.Errorf("shapes %v: error = %v, want ErrResult", shapes, err)
		}
	}
}
