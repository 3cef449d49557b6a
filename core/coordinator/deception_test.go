package coordinator

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"strconv"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
)

// witnessedRound returns a finished round. The first trainers, silent in number, have no result,
// and a witness misses the results of the members for which skips returns true.
func witnessedRound(members, silent int, seed uint64, skips func(witness, member int) bool) Round {
	r := Round{Seed: seed, BatchSize: uint32(members)}
	for i := range members {
		r.Members = append(r.Members, clientID("m"+strconv.Itoa(i)))
	}
	elected := r.ElectedWitnesses(Config{})
	r.WitnessesElected = uint16(len(elected))
	r.WitnessesNeeded = uint16(assign.Quorum(len(elected)))
	keys := bloom.NewKeys(seed)
	for i, member := range elected {
		w := Witness{Member: uint16(member)}
		for j := silent; j < members; j++ {
			if !skips(i, j) {
				w.Participants.AddPositions(keys.Positions(r.Members[j][:]))
				c := commitment(r.Members[j], 1)
				w.Commitments.AddPositions(keys.Positions(c[:]))
			}
		}
		r.Witnesses = append(r.Witnesses, w)
	}
	return r
}

// TestFalsePositivesRarelyDeceiveAQuorum measures how often a silent trainer looks healthy and how
// often a commitment that no member holds has a quorum, in rounds of 256 members and 32 witnesses.
// In the worst case, honest witnesses hold the same results and therefore err together: a quorum
// then errs as often as a single filter. If each witness misses some results, a quorum errs less
// often.
func TestFalsePositivesRarelyDeceiveAQuorum(t *testing.T) {
	const members, silent, rounds, probes = 256, 16, 60, 100
	bound := math.Pow(1-math.Exp(-float64(bloom.Hashes*members)/bloom.Bits), bloom.Hashes) // 0.82 %
	for _, test := range []struct {
		name  string
		skips func(witness, member int) bool
	}{
		{"all hold the same", func(int, int) bool { return false }},
		{"each misses one in eight", func(witness, member int) bool { return (witness*37+member)%8 == 0 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			healthy, counted := 0, 0
			for seed := range uint64(rounds) {
				r := witnessedRound(members, silent, seed, test.skips)
				for i := range silent {
					if r.Score(r.Members[i]) >= int(r.WitnessesNeeded) {
						healthy++
					}
				}
				for probe := range uint64(probes) {
					unseen := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, seed<<32|probe))
					if _, ok := r.counted([][32]byte{unseen}); ok {
						counted++
					}
				}
			}
			silentRate := float64(healthy) / (rounds * silent)
			countedRate := float64(counted) / (rounds * probes)
			t.Logf("silent but healthy %.4f, unseen but counted %.4f, bound %.4f", silentRate, countedRate, bound)
			// Five standard deviations above the bound.
			limit := func(n float64) float64 { return bound + 5*math.Sqrt(bound/n) }
			if silentRate > limit(rounds*silent) || countedRate > limit(rounds*probes) {
				t.Errorf("silent but healthy %.4f, unseen but counted %.4f, bound %.4f", silentRate, countedRate, bound)
			}
		})
	}
}

// TestFilterErrorsHarmNoTrainerThatDelivered checks that filters never accuse a trainer that
// delivered or remove a vote, because filters have no false negatives.
func TestFilterErrorsHarmNoTrainerThatDelivered(t *testing.T) {
	for seed := range uint64(10) {
		r := witnessedRound(256, 16, seed, func(int, int) bool { return false })
		for _, id := range r.Unhealthy(Config{}) {
			if index, _ := r.MemberIndex(id); index >= 16 {
				t.Errorf("seed %d: member %d delivered but is accused", seed, index)
			}
		}
		for i := 16; i < 256; i++ {
			if votes := r.Votes(commitment(r.Members[i], 1)); votes != 32 {
				t.Fatalf("seed %d: %d votes of 32", seed, votes)
			}
		}
	}
}

// TestFilledFilterIsRefused checks that a witness cannot send a filter that contains everything.
func TestFilledFilterIsRefused(t *testing.T) {
	s := newRun(t, testConfig(), "a", "b", "c")
	a := s.witnessOf()
	word := 0
	for a.Commitments.OnesCount() <= bloom.Hashes*3 {
		a.Commitments[word] = 1<<64 - 1
		word++
	}
	s.refused("a", a, ErrInvalidWitness)
}
