//go:build cgo && linux

package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// modelShapes are small tensors with the same shapes of chunks, of at most 64×64, as the models in proof/bench and
// configs: experts have 16 or 32 rows, a router has 8, and 688 weights are 16 times 43.
var modelShapes = [][]int64{
	{64, 128}, {128, 64}, {86, 64}, {64, 86}, {48, 64}, {144, 96}, {80, 192}, {32, 64}, {64, 32}, {16, 64}, {8, 192}, {192}, {96},
}

// anyLayouts returns layouts of up to three random tensors. An emulated block takes long, so tensors have few chunks.
func anyLayouts(t *testing.T, random *rand.Rand) (layouts []distro.Layout) {
	const most = 60
	for count := 1 + random.IntN(3); len(layouts) < count; {
		var shape []int64
		for range random.IntN(3) {
			shape = append(shape, 1+random.Int64N(150))
		}
		if random.IntN(8) == 0 {
			shape = []int64{1 + random.Int64N(3), 1 + random.Int64N(70), 1 + random.Int64N(70)}
		}
		if l := layout(t, 1+random.IntN(distro.MaxChunk), shape...); l.Chunks() <= most {
			layouts = append(layouts, l)
		}
	}
	return layouts
}

// anyValues returns values with many equal magnitudes, many zeros, or neither.
func anyValues(random *rand.Rand, layouts []distro.Layout) (values [][]float32) {
	for _, l := range layouts {
		v := make([]float32, l.Elements())
		switch random.IntN(5) {
		case 0:
			for range 1 + random.IntN(4) {
				v[random.IntN(len(v))] = float32(1 - 2*random.IntN(2))
			}
		case 1:
			for i := range v {
				v[i] = float32(random.IntN(3) - 1)
			}
		case 2:
			for i := range v {
				v[i] = 0.5
			}
		case 3: // zeros
		default:
			copy(v, normal(random.Uint64(), len(v), 1))
		}
		values = append(values, v)
	}
	return values
}

// TestAnyModelHasTheBitsOfTheReference runs every kernel on random tensors with any number of coefficients.
// PSYCHE_TEST_SEEDS is the number of models.
func TestAnyModelHasTheBitsOfTheReference(t *testing.T) {
	d, models := emulated(t), 6
	if n, err := strconv.Atoi(os.Getenv("PSYCHE_TEST_SEEDS")); err == nil {
		models = n
	}
	for seed := range models {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 5))
			compareModel(t, d, random, anyLayouts(t, random), 1+random.IntN(76))
		})
	}
	t.Run("models", func(t *testing.T) {
		random, layouts := rand.New(rand.NewPCG(1, 6)), []distro.Layout{}
		for _, shape := range modelShapes {
			layouts = append(layouts, layout(t, 64, shape...))
		}
		compareModel(t, d, random, layouts, 8)
	})
}

func compareModel(t *testing.T, d *Device, random *rand.Rand, layouts []distro.Layout, topK int) {
	t.Helper()
	r := newModelRig(t, d, topK, layouts)
	compareElements(t, r)
	delta, grad := anyValues(random, layouts), anyValues(random, layouts)
	_, deltaAt := r.upload(t, delta)
	_, gradAt := r.upload(t, grad)
	p := distro.EncodeParams{Decay: 0.9, LR: 0.5, TopK: topK}
	taken, left := make([]codec.TensorResult, len(layouts)), clones(delta)
	for i, l := range layouts {
		reference := p
		reference.Floor = r.kernel.Floor(delta[i], grad[i], p)
		var err error
		if taken[i], err = r.kernel.EncodeTo(l, delta[i], left[i], grad[i], reference); err != nil {
			t.Fatal(err)
		}
	}
	lefts, leftAt := r.upload(t, delta)
	got, err := r.model.Encode(deltaAt, leftAt, gradAt, p, 0)
	if err != nil {
		t.Fatal(err)
	}
	sameResults(t, got, taken)
	r.same(t, "momentum", lefts, left)
	r.checkLeaves(t, leftAt, left, taken)
	compareLevels(t, r, random, delta, grad, deltaAt, gradAt)
	weights := anyValues(random, layouts)
	there, weightsAt := r.upload(t, weights)
	apply := distro.ApplyParams{LR: 0.37, WeightFactor: 0.99}
	for i, l := range layouts {
		if err := errors.Join(r.kernel.DecodeApply(l, []codec.TensorResult{taken[i], taken[i]}, weights[i], apply),
			r.kernel.AddBack(l, left[i], taken[i])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(r.model.Apply([][]codec.TensorResult{taken, taken}, weightsAt, apply), r.model.AddBack(leftAt, taken)); err != nil {
		t.Fatal(err)
	}
	r.same(t, "weights", there, weights)
	r.same(t, "momentum with the result again", lefts, left)
	refusesNaN(t, r, random, grad, deltaAt, leftAt)
}

// compareElements runs the kernels that compute each element on its own.
func compareElements(t *testing.T, r *modelRig) {
	t.Helper()
	compareAdamW(t, r, -1)
	compareFar(t, r)
	values := r.values(9, 1)
	_, at := r.upload(t, values)
	squares, err := r.model.Squares(at)
	norm := Norm(squares)
	if want := distro.Norm(1, values); err != nil || !(math.Abs(norm-want) <= 1e-12*want) {
		t.Errorf("norm %v, want %v: %v", norm, want, err)
	}
}

func sameResults(t *testing.T, got, want []codec.TensorResult) {
	t.Helper()
	for i := range want {
		if !slices.Equal(got[i].Counts, want[i].Counts) || !slices.Equal(got[i].Indices, want[i].Indices) || !slices.Equal(got[i].Units, want[i].Units) {
			t.Fatalf("tensor %d: other coefficients were selected", i)
		}
		sameBits(t, "coefficients", got[i].Values, want[i].Values)
	}
}

// compareLevels encodes levels and applies them twice.
func compareLevels(t *testing.T, r *modelRig, random *rand.Rand, delta, grad [][]float32, deltaAt, gradAt []Tensor) {
	t.Helper()
	p := localsteps.EncodeParams{Reach: 0.3, TopK: r.model.topK, LevelBits: 1 + random.IntN(codec.MaxLevelBits), Decay: 0.9}
	apply := localsteps.ApplyParams{Reach: p.Reach, LevelBits: p.LevelBits, Rate: 0.7}
	left, weights := clones(delta), anyValues(random, r.layouts)
	lefts, leftAt := r.upload(t, left)
	there, weightsAt := r.upload(t, weights)
	var want []codec.TensorResult
	for i, l := range r.layouts {
		levels, err := localsteps.Encode(r.kernel, l, left[i], grad[i], p)
		if err != nil {
			t.Fatal(err)
		}
		if err := localsteps.Apply(r.kernel, l, []codec.TensorResult{levels, levels}, weights[i], apply); err != nil {
			t.Fatal(err)
		}
		want = append(want, levels)
	}
	got, err := r.model.EncodeLevels(deltaAt, leftAt, gradAt, p)
	if err != nil {
		t.Fatal(err)
	}
	sameResults(t, got, want)
	r.same(t, "sums", lefts, left)
	if err := r.model.ApplyLevels([][]codec.TensorResult{got, got}, weightsAt, apply); err != nil {
		t.Fatal(err)
	}
	r.same(t, "weights moved by levels", there, weights)
}

// refusesNaN encodes gradients with an element that is not a number.
func refusesNaN(t *testing.T, r *modelRig, random *rand.Rand, grad [][]float32, deltaAt, leftAt []Tensor) {
	t.Helper()
	bad := grad[random.IntN(len(grad))]
	bad[random.IntN(len(bad))] = float32(math.NaN())
	_, badAt := r.upload(t, grad)
	_, err := r.model.Encode(deltaAt, leftAt, badAt, distro.EncodeParams{Decay: 0.9, LR: 0.5, TopK: r.model.topK}, 0)
	if !errors.Is(err, distro.ErrNotFinite) {
		t.Errorf("gradient that is not a number: error %v, want ErrNotFinite", err)
	}
	levels := localsteps.EncodeParams{Reach: 1, TopK: r.model.topK, LevelBits: 2, Decay: 0.9}
	if _, err := r.model.EncodeLevels(deltaAt, leftAt, badAt, levels); !errors.Is(err, distro.ErrNotFinite) {
		t.Errorf("levels of a gradient that is not a number: error %v, want ErrNotFinite", err)
	}
}
