package assign

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRanksAgreeWithTheCommittee: verifiers are who does not train, each with the rank of its place.
func TestRanksAgreeWithTheCommittee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		members := rapid.IntRange(0, 40).Draw(t, "members")
		percent := rapid.IntRange(-1, 101).Draw(t, "percent")
		verifiers, trainers := Verifiers(seed, members, percent), Trainers(seed, members, percent)
		if len(verifiers) != VerifierCount(members, percent) || len(verifiers)+len(trainers) != members {
			t.Fatalf("%d verifiers and %d trainers of %d", len(verifiers), len(trainers), members)
		}
		for member := -1; member <= members; member++ {
			rank, ok := Rank(seed, members, percent, member)
			if ok != slices.Contains(verifiers, member) || ok == slices.Contains(trainers, member) && member >= 0 && member < members {
				t.Fatalf("member %d verifies: %v", member, ok)
			}
			if ok && verifiers[rank] != member {
				t.Fatalf("member %d has rank %d, which is %d's", member, rank, verifiers[rank])
			}
		}
	})
}

// TestTargets: but for doubles no two verifiers audit one trainer while there are enough, and all
// trainers are as likely.
func TestTargets(t *testing.T) {
	const trainers, verifiers, seeds = 9, 6, 3000
	counts, doubles := [trainers]int{}, 0
	for seed := range uint64(seeds) {
		seen := map[int]bool{}
		for rank := range verifiers {
			target := Target(seed, rank, verifiers, trainers)
			counts[target]++
			if seen[target] && (rank%2 == 0 || target != Target(seed, rank-1, verifiers, trainers)) {
				t.Fatalf("seed %d: two verifiers audit %d, and are no pair", seed, target)
			}
			seen[target] = true
		}
		if Target(seed, 0, verifiers, trainers) == Target(seed, 1, verifiers, trainers) {
			doubles++
		}
	}
	for trainer, n := range counts {
		if want := seeds * verifiers / trainers; math.Abs(float64(n-want)) > 0.1*float64(want) {
			t.Errorf("trainer %d is audited %d times, want about %d", trainer, n, want)
		}
	}
	if math.Abs(float64(doubles)/seeds-DoublePercent/100.0) > 0.04 {
		t.Errorf("%d of %d pairs audit the same trainer, want %d %%", doubles, seeds, DoublePercent)
	}
	for _, none := range [][3]int{{-1, 3, 3}, {3, 3, 3}, {0, 3, 0}} {
		if got := Target(1, none[0], none[1], none[2]); got != -1 {
			t.Errorf("target of %v: %d", none, got)
		}
	}
}

// TestTargetsAreKept: who draws differently asks other trainers than those that open.
func TestTargetsAreKept(t *testing.T) {
	var got []int
	for seed := range uint64(3) {
		for rank := range 5 {
			got = append(got, Target(seed, rank, 5, 11))
		}
	}
	if want := []int{2, 2, 0, 0, 10, 10, 10, 7, 6, 0, 4, 1, 9, 0, 6}; !slices.Equal(got, want) {
		t.Errorf("targets %v, want %v", got, want)
	}
	if got, want := Jury(7, 9), []int{5, 2, 3, 7, 4, 0, 8, 1, 6}; !slices.Equal(got, want) {
		t.Errorf("jury %v, want %v", got, want)
	}
	if Jury(7, 0) != nil {
		t.Error("nobody is called")
	}
}
