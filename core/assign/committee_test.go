package assign

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestProofsAgreeWithTheAssignment derives the trainers and witnesses of a round from the proofs of
// all members.
func TestProofsAgreeWithTheAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Selection{
			Seed:                rapid.Uint64().Draw(t, "seed"),
			BatchSeed:           rapid.Uint64().Draw(t, "batch seed"),
			Members:             rapid.IntRange(1, 40).Draw(t, "members"),
			WitnessNodes:        rapid.IntRange(0, 40).Draw(t, "witness nodes"),
			VerificationPercent: rapid.IntRange(0, 100).Draw(t, "percent"),
		}
		var trainers, witnesses []int
		count := map[committee]int{}
		for member := range s.Members {
			p, ok := s.Prove(member)
			if !ok || !s.Verify(p) {
				t.Fatalf("proof %+v is invalid", p)
			}
			count[p.Committee]++
			if p.Committee == Trainer {
				trainers = append(trainers, member)
			}
			if p.Witness {
				witnesses = append(witnesses, member)
			}
		}
		if want := Trainers(s.BatchSeed, s.Members, s.VerificationPercent); !slices.Equal(trainers, want) {
			t.Fatalf("trainers by proof %v, by assignment %v", trainers, want)
		}
		elected := slices.Sorted(slices.Values(Witnesses(s.Seed, s.Members, s.WitnessNodes)))
		if !slices.Equal(witnesses, elected) {
			t.Fatalf("witnesses by proof %v, by election %v", witnesses, elected)
		}
		if idle := count[verifier] + count[tieBreaker]; count[tieBreaker] != idle/3 {
			t.Fatalf("%d tie-breakers of %d that do not train", count[tieBreaker], idle)
		}
	})
}

func TestFalseProofsDoNotVerify(t *testing.T) {
	s := Selection{Seed: 42, BatchSeed: 43, Members: 12, WitnessNodes: 4, VerificationPercent: 50}
	differ := map[string]bool{}
	for member := range s.Members {
		good, _ := s.Prove(member)
		for name, alter := range map[string]func(*proof){
			"another member":           func(p *proof) { p.Member = (p.Member + 1) % 12 },
			"no member":                func(p *proof) { p.Member = 12 },
			"a negative member":        func(p *proof) { p.Member = -1 },
			"another committee":        func(p *proof) { p.Committee = (p.Committee + 1) % 3 },
			"another position":         func(p *proof) { p.Position = (p.Position + 1) % 12 },
			"a witness or none":        func(p *proof) { p.Witness = !p.Witness },
			"another witness position": func(p *proof) { p.WitnessPosition = (p.WitnessPosition + 1) % 12 },
		} {
			p := good
			alter(&p)
			if s.Verify(p) {
				t.Errorf("%s of %+v is valid", name, good)
			}
		}
		for name, alter := range map[string]func(*Selection){
			"of another seed":        func(s *Selection) { s.Seed = 44 },
			"of another batch seed":  func(s *Selection) { s.BatchSeed = 44 },
			"with the seeds swapped": func(s *Selection) { s.Seed, s.BatchSeed = s.BatchSeed, s.Seed },
		} {
			other := s
			alter(&other)
			want, _ := other.Prove(member)
			if other.Verify(good) != (want == good) {
				t.Errorf("%+v is valid in a round %s", good, name)
			}
			differ[name] = differ[name] || want != good
		}
	}
	for name, differs := range differ {
		if !differs {
			t.Errorf("every member has the same part in a round %s", name)
		}
	}
}

func TestCommitteeNames(t *testing.T) {
	want := []string{"trainer", "verifier", "tie-breaker", "committee?"}
	for c, name := range want {
		if got := committee(c).String(); got != name {
			t.Errorf("committee %d is called %s, want %s", c, got, name)
		}
	}
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
		for _, a := range Batches(seed, members, 0, 0, members+1) {
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
