package assign

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRolesFollowFromPositions derives every member's roles from its positions in the two shuffles.
func TestRolesFollowFromPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, batchSeed := rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "batch seed")
		members := rapid.IntRange(1, 40).Draw(t, "members")
		nodes := rapid.IntRange(0, 40).Draw(t, "witness nodes")
		percent := rapid.IntRange(0, 100).Draw(t, "percent")
		var trainers, witnesses []int
		for member := range members {
			if int(Position(uint32(member), uint32(members), batchSeed, saltCommittee)) >= VerifierCount(members, percent) {
				trainers = append(trainers, member)
			}
			if int(Position(uint32(member), uint32(members), seed, saltWitness)) < electedWitnesses(members, nodes) {
				witnesses = append(witnesses, member)
			}
		}
		if got := Trainers(batchSeed, members, percent); !slices.Equal(got, trainers) {
			t.Fatalf("trainers %v, by position %v", got, trainers)
		}
		if got := slices.Sorted(slices.Values(Witnesses(seed, members, nodes))); !slices.Equal(got, witnesses) {
			t.Fatalf("witnesses %v, by position %v", got, witnesses)
		}
	})
}

// TestBugVerifiersPanic checks that every committee size has a trainer and does not panic.
func TestBugVerifiersPanic(t *testing.T) {
	for members := range 40 {
		for percent := -1; percent <= 101; percent++ {
			trainers := Trainers(7, members, percent)
			if members > 0 && len(trainers) == 0 {
				t.Fatalf("none of %d members trains at %d %%", members, percent)
			}
		}
	}
}

// TestBugFewerMembersThanWitnessNodes checks that all members are elected if there are fewer
// members than witnesses.
func TestBugFewerMembersThanWitnessNodes(t *testing.T) {
	if got := len(Witnesses(7, 3, 10)); got != 3 {
		t.Errorf("%d of 3 members witness, want all", got)
	}
}

// TestBugBatchOrderFollowsLowBits counts how often each of four trainers gets the larger batch in
// 4,000 rounds with consecutive seeds: about a quarter each. The low bits of a linear congruential
// generator modulo a power of two have a period of only a few rounds.
func TestBugBatchOrderFollowsLowBits(t *testing.T) {
	const rounds, members = 4000, 4
	var larger [members]int
	repeats, last := 0, -1
	for seed := range uint64(rounds) {
		for _, a := range Batches(seed, members, 0, 0, members+1, nil) {
			if a.Batch.Len() != 2 {
				continue
			}
			larger[a.Member]++
			if a.Member == last {
				repeats++
			}
			last = a.Member
		}
	}
	const mean, tolerance = rounds / 4, 137 // five standard deviations of a binomial distribution
	for member, n := range larger {
		if n < mean-tolerance || n > mean+tolerance {
			t.Errorf("member %d has the larger batch in %d of %d rounds", member, n, rounds)
		}
	}
	if repeats < mean-tolerance || repeats > mean+tolerance {
		t.Errorf("the same member follows itself in %d of %d rounds", repeats, rounds)
	}
}
