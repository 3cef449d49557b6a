//go:build cgo && linux

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// testEncodeLevels compares levels and sums with the results of package localsteps.
func testEncodeLevels(t *testing.T, d *Device, cases int) {
	layouts := shapes(t, true)
	random := rand.New(rand.NewPCG(7, 8))
	for range cases {
		topK := 1 + random.IntN(76)
		r := newModelRig(t, d, topK, layouts)
		delta, grad := r.values(random.Uint64(), 1), r.values(random.Uint64(), 1)
		clear(grad[7]) // the sums are zeros, so this tensor sends nothing
		left := clones(delta)
		_, deltaAt := r.upload(t, delta)
		lefts, leftAt := r.upload(t, left)
		_, gradAt := r.upload(t, grad)
		p := localsteps.EncodeParams{
			Reach: []float32{0.3, 1e-3, 0, 1e-40, math.MaxFloat32}[random.IntN(5)],
			TopK:  topK, LevelBits: 1 + random.IntN(codec.MaxLevelBits), Decay: 0.9,
		}
		if random.IntN(2) == 0 { // in place
			lefts, leftAt = r.upload(t, left)
			deltaAt = leftAt
		}
		got, err := r.model.EncodeLevels(deltaAt, leftAt, gradAt, p)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range layouts {
			want, err := localsteps.Encode(r.kernel, l, left[i], grad[i], p)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got[i].Counts, want.Counts) || !slices.Equal(got[i].Units, want.Units) ||
				!slices.Equal(got[i].Indices, want.Indices) || !slices.Equal(got[i].Values, want.Values) {
				t.Fatalf("%+v: tensor %d: other levels", p, i)
			}
		}
		r.same(t, "sums", lefts, left)
	}
}

func TestEncodedLevelsHaveTheBitsOfTheReference(t *testing.T) { testEncodeLevels(t, emulated(t), 8) }

func TestEncodedLevelsOnADevice(t *testing.T) { testEncodeLevels(t, real(t), 30) }

func TestLevelsOfWrongArguments(t *testing.T) {
	l := layout(t, 8, 8, 16)
	r := newModelRig(t, emulated(t), 2, []distro.Layout{l})
	sums := []([]float32){make([]float32, 128)}
	there, at := r.upload(t, sums)
	gradient := make([]float32, 128)
	gradient[90] = float32(math.NaN())
	_, notFinite := r.upload(t, [][]float32{gradient})
	fine := localsteps.EncodeParams{Reach: 1, TopK: 2, LevelBits: 4, Decay: 1}
	bits, reach, k := fine, fine, fine
	bits.LevelBits, reach.Reach, k.TopK = codec.MaxLevelBits+1, float32(math.Inf(1)), 3
	for _, p := range []localsteps.EncodeParams{bits, reach, k} {
		if _, err := r.model.EncodeLevels(at, at, at, p); !errors.Is(err, distro.ErrInput) {
			t.Errorf("%+v: error %v, want ErrInput", p, err)
		}
	}
	if _, err := r.model.EncodeLevels(at, at, at[:0], fine); !errors.Is(err, distro.ErrInput) {
		t.Errorf("no gradients: error %v, want ErrInput", err)
	}
	if _, err := r.model.EncodeLevels(at, at, notFinite, fine); !errors.Is(err, distro.ErrNotFinite) {
		t.Errorf("not a number: error %v, want ErrNotFinite", err)
	}
	r.same(t, "sums", there, sums)
}
