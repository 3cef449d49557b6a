//go:build cgo && linux

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/localsteps"
)

const levelBits = 4

// drawLevels returns a result of levels with up to places entries for each chunk.
func drawLevels(random *rand.Rand, l distro.Layout, places int) codec.TensorResult {
	r := codec.TensorLayout{Chunks: l.Chunks(), ChunkSize: l.ChunkSize(), K: places}.NewLevels()
	largest := 1 << (levelBits - 1)
	for c := range r.Counts {
		count := random.IntN(places + 1)
		indices := random.Perm(l.ChunkSize())[:count]
		slices.Sort(indices)
		r.Counts[c] = uint16(count)
		if count > 0 {
			r.Units[c] = uint8(random.IntN(codec.MaxUnit + 1))
		}
		for i, index := range indices {
			r.Indices[c*places+i] = uint16(index)
			r.Values[c*places+i] = float32((1 + random.IntN(largest)) * (1 - 2*random.IntN(2)))
		}
	}
	return r
}

func testLevels(t *testing.T, d *Device, cases int) {
	layouts := []distro.Layout{layout(t, 64, 64, 192), layout(t, 64, 29, 44), layout(t, 128, 128, 128), layout(t, 64, 3), layout(t, 64)}
	random := rand.New(rand.NewPCG(1, 2))
	for range cases {
		r := newModelRig(t, d, 1, layouts)
		r.model.staging = []int{defaultStaging, 0, 9000}[random.IntN(3)]
		weights := r.values(random.Uint64(), 1)
		weightsThere, weightsAt := r.upload(t, weights)
		results := make([][]codec.TensorResult, random.IntN(40))
		votes := make(distro.Votes, len(results))
		for i := range results {
			votes[i] = uint8(1 + random.IntN(assign.FullVote))
			for _, l := range layouts {
				results[i] = append(results[i], drawLevels(random, l, 1+random.IntN(min(l.ChunkSize(), 20))))
			}
			if i > 0 && random.IntN(3) == 0 { // opposite levels, so that coefficients are zero
				results[i] = opposite(results[i-1])
			}
		}
		p := localsteps.ApplyParams{Reach: 0.013 * float32(random.IntN(2)), LevelBits: levelBits, Rate: 0.7}
		if random.IntN(2) == 0 {
			p.Votes = votes
		}
		for i, l := range layouts {
			ofTensor := make([]codec.TensorResult, len(results))
			for j := range results {
				ofTensor[j] = results[j][i]
			}
			if err := localsteps.Apply(r.kernel, l, ofTensor, weights[i], p); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.model.ApplyLevels(results, weightsAt, p); err != nil {
			t.Fatal(err)
		}
		r.same(t, "weights", weightsThere, weights)
	}
}

func opposite(result []codec.TensorResult) (negative []codec.TensorResult) {
	for _, r := range result {
		values := slices.Clone(r.Values)
		for i := range values {
			values[i] = 0 - values[i] // not −0, which is not an empty place
		}
		negative = append(negative, codec.TensorResult{Counts: r.Counts, Indices: r.Indices, Values: values, Units: r.Units})
	}
	return negative
}

func TestLevelsHaveTheBitsOfTheReference(t *testing.T) { testLevels(t, emulated(t), 12) }

func TestLevelsOnADevice(t *testing.T) { testLevels(t, real(t), 30) }

func TestLevelsThatDoNotFit(t *testing.T) {
	l := layout(t, 8, 8, 8)
	r := newModelRig(t, emulated(t), 1, []distro.Layout{l})
	weights := make([]float32, 64)
	there, at := r.upload(t, [][]float32{weights})
	fine := localsteps.ApplyParams{Reach: 1, LevelBits: levelBits, Rate: 1}
	infinite, few := fine, fine
	infinite.Reach = float32(math.Inf(1))
	few.LevelBits = 1
	votes := fine
	votes.Votes = distro.Votes{16}
	large := l.Codec(1).NewLevels()
	large.Counts[0], large.Values[0] = 1, 8
	for name, call := range map[string]func() error{
		"no weights":     func() error { return r.model.ApplyLevels(nil, nil, fine) },
		"infinite reach": func() error { return r.model.ApplyLevels(nil, at, infinite) },
		"a vote":         func() error { return r.model.ApplyLevels(nil, at, votes) },
		"no tensors":     func() error { return r.model.ApplyLevels([][]codec.TensorResult{{}}, at, fine) },
		"no units":       func() error { return r.model.ApplyLevels([][]codec.TensorResult{{oneEntry(l, 0, 1)}}, at, fine) },
		"large level":    func() error { return r.model.ApplyLevels([][]codec.TensorResult{{large}}, at, few) },
	} {
		if err := call(); !errors.Is(err, distro.ErrInput) {
			t.Errorf("%s: error %v, want ErrInput", name, err)
		}
	}
	r.same(t, "weights", there, [][]float32{weights})
}
