//go:build cgo && linux

package cuda

import (
	"errors"
	"math"
	"testing"

	"github.com/psyche-go/psyche/learn/distro"
)

func TestAdamW(t *testing.T) { testAdamW(t, emulated(t)) }

func TestAdamWOnADevice(t *testing.T) { testAdamW(t, real(t)) }

// testAdamW compares a step with the operations of the CPU's loop, each rounded to single precision.
func testAdamW(t *testing.T, d *Device) {
	r := newModelRig(t, d, 1, shapes(t, true))
	weightsAt, gradAt, meansAt, squaresAt, p := compareAdamW(t, r, 4)
	p.Step = 0
	if err := r.model.AdamW(weightsAt, gradAt, meansAt, squaresAt, p); !errors.Is(err, distro.ErrInput) {
		t.Errorf("step 0: error %v, want ErrInput", err)
	}
	weightsAt[1] = Tensor{}
	p.Step = 1
	if err := r.model.AdamW(weightsAt, gradAt, meansAt, squaresAt, p); !errors.Is(err, distro.ErrInput) {
		t.Errorf("no weights: error %v, want ErrInput", err)
	}
}

// compareAdamW makes a step on all tensors but one, and returns its arguments.
func compareAdamW(t *testing.T, r *modelRig, skipped int) (weightsAt, gradAt, meansAt, squaresAt []Tensor, p AdamWParams) {
	t.Helper()
	weights, grad, means, squares := r.values(1, 1), r.values(2, 1), r.values(3, 0.1), r.values(4, 0.1)
	for _, values := range squares {
		for i, v := range values {
			values[i] = float32(math.Abs(float64(v)))
		}
	}
	weightsThere, weightsAt := r.upload(t, weights)
	_, gradAt = r.upload(t, grad)
	meansThere, meansAt := r.upload(t, means)
	squaresThere, squaresAt := r.upload(t, squares)
	if skipped >= 0 {
		squaresAt[skipped] = Tensor{}
	}
	p = AdamWParams{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1, Rate: 3e-3, Clip: 0.37, Step: 3}
	if err := r.model.AdamW(weightsAt, gradAt, meansAt, squaresAt, p); err != nil {
		t.Fatal(err)
	}
	root := float32(math.Sqrt(1 - p.Beta2*p.Beta2*p.Beta2))
	rate, keep := float32(p.Rate/(1-p.Beta1*p.Beta1*p.Beta1)), float32(1-p.Rate*p.WeightDecay)
	for i := range weights {
		for j := range weights[i] {
			if i == skipped {
				break
			}
			g := grad[i][j] * float32(p.Clip)
			mean := float32(means[i][j]*float32(p.Beta1)) + float32(g*float32(1-p.Beta1))
			square := float32(squares[i][j]*float32(p.Beta2)) + float32(float32(g*g)*float32(1-p.Beta2))
			size := float32(float32(math.Sqrt(float64(square)))/root) + float32(p.Epsilon)
			means[i][j], squares[i][j] = mean, square
			weights[i][j] = float32(weights[i][j]*keep) - float32(rate*float32(mean/size))
		}
	}
	r.same(t, "weights", weightsThere, weights)
	r.same(t, "means", meansThere, means)
	r.same(t, "squares", squaresThere, squares)
	return weightsAt, gradAt, meansAt, squaresAt, p
}

// far is localsteps.Far with each operation rounded to single precision.
func far(before, after, momenta []float32, factor float32) {
	for i := range after {
		d := before[i] - after[i]
		if momenta != nil {
			momenta[i] = float32(factor*momenta[i]) + d
			d += float32(factor * momenta[i])
		}
		after[i] = d
	}
}

func TestFar(t *testing.T) { testFar(t, emulated(t)) }

func TestFarOnADevice(t *testing.T) { testFar(t, real(t)) }

func testFar(t *testing.T, d *Device) { compareFar(t, newModelRig(t, d, 1, shapes(t, true))) }

func compareFar(t *testing.T, r *modelRig) {
	t.Helper()
	before, after, momenta := r.values(1, 1), r.values(2, 1), r.values(3, 1)
	_, beforeAt := r.upload(t, before)
	afterThere, afterAt := r.upload(t, after)
	momentaThere, momentaAt := r.upload(t, momenta)
	for i := range before {
		far(before[i], after[i], momenta[i], 0.9)
	}
	if err := r.model.Far(beforeAt, afterAt, momentaAt, 0.9); err != nil {
		t.Fatal(err)
	}
	r.same(t, "pseudo-gradient", afterThere, after)
	r.same(t, "momentum", momentaThere, momenta)
	for i := range before {
		far(before[i], after[i], nil, 0.9)
	}
	if err := r.model.Far(beforeAt, afterAt, nil, 0.9); err != nil {
		t.Fatal(err)
	}
	r.same(t, "pseudo-gradient without a momentum", afterThere, after)
}

// TestEncodeWithoutFloors encodes quiet chunks, as local steps do.
func TestEncodeWithoutFloors(t *testing.T) {
	r := newModelRig(t, emulated(t), encodeParams.TopK, shapes(t, true))
	delta, grad := r.values(1, 1), r.values(2, 1)
	deltas, deltaAt := r.upload(t, delta)
	_, gradAt := r.upload(t, grad)
	got, err := r.model.Encode(deltaAt, deltaAt, gradAt, encodeParams, -1)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range r.layouts {
		want, err := r.kernel.Encode(l, delta[i], grad[i], encodeParams)
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, "coefficients", got[i].Values, want.Values)
	}
	r.same(t, "momentum", deltas, delta)
}
