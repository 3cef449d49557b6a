//go:build cgo && linux

package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
)

// testVotes compares updates by more results than a warp adds at once with the CPU's updates.
func testVotes(t *testing.T, d *Device) {
	l := layout(t, 8, 8, 16)
	random := rand.New(rand.NewPCG(3, 4))
	for _, count := range []int{1, 31, 33, 70, maxResults} {
		var results []codec.TensorResult
		var votes distro.Votes
		for range count {
			sign := float32(1 - 2*random.IntN(2))
			results = append(results, oneEntry(l, uint16(random.IntN(l.ChunkSize())), sign))
			votes = append(votes, uint8(1+random.IntN(assign.FullVote)))
		}
		full := slices.Repeat(distro.Votes{assign.FullVote}, count)
		for _, votes := range []distro.Votes{nil, full, votes} {
			weights := normal(1, l.Elements(), 1)
			onDevice := buffer(t, d, weights)
			p := distro.ApplyParams{LR: 0.37, WeightFactor: 0.9, Votes: votes}
			if err := kernel(t, "go").DecodeApply(l, results, weights, p); err != nil {
				t.Fatal(err)
			}
			if err := d.apply(l, results, onDevice.Tensor(), p); err != nil {
				t.Fatal(err)
			}
			sameBits(t, "weights", values(t, onDevice), weights)
			compareMeans(t, d, l, results, votes)
		}
	}
}

func TestVotesGiveTheBitsOfTheReference(t *testing.T) { testVotes(t, emulated(t)) }

func TestVotesOnADevice(t *testing.T) { testVotes(t, real(t)) }
