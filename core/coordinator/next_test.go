package coordinator

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// prediction is the newest result of NextRound and the state from which it was computed.
type prediction struct {
	round Round
	ok    bool
	state State
}

func predict(s *State) prediction {
	round, ok := s.NextRound()
	return prediction{round, ok, s.Clone()}
}

// check compares the prediction with the result of a tick of the same state.
func (f *prediction) check(t *rapid.T, s *State) {
	t.Helper()
	before := &f.state
	begun := s.RunState == RoundTrain && before.RunState != RoundTrain
	if !begun {
		over := before.RunState == RoundWitness && s.RunState == Cooldown
		if over && f.ok && before.CurrentRound().HasQuorum() {
			t.Fatalf("NextRound predicted step %d and the epoch is over\n%s", f.round.Step, before.String())
		}
		return
	}
	if !f.ok {
		t.Fatalf("NextRound predicted no round, and step %d begins\n%s", s.Progress.Step, before.String())
	}
	got := *s.CurrentRound()
	if got.WitnessesElected == 0 || f.round.Seed != 0 || f.round.WitnessesElected != 0 || f.round.WitnessesNeeded != 0 {
		t.Fatalf("predicted %+v, begun %+v", f.round, got)
	}
	got.Seed, got.WitnessesElected, got.WitnessesNeeded = 0, 0, 0
	if diff := cmp.Diff(f.round, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("prediction (-want +got):\n%s", diff)
	}
}

// TestBatchesAreKnownOneRoundAhead follows honest runs with members that are slow, withdraw and
// warm up. It checks that NextRound, during a round, returns the following round, unless a member
// leaves or an authority acts in the meantime.
func TestBatchesAreKnownOneRoundAhead(t *testing.T) {
	ahead := 0
	rapid.Check(t, func(t *rapid.T) {
		config := testConfig()
		config.TotalSteps = rapid.Uint32Range(1, 12).Draw(t, "total steps")
		config.RoundsPerEpoch = rapid.Uint32Range(1, 5).Draw(t, "rounds")
		config.WitnessNodes = rapid.Uint16Range(0, 2).Draw(t, "witness nodes")
		config.VerificationPercent = rapid.SampledFrom([]uint8{0, 40}).Draw(t, "verification")
		config.GlobalBatchSizeEnd, config.GlobalBatchSizeWarmupTokens = 20, 3000
		config.SharesBySpeed = rapid.Bool().Draw(t, "shares by speed")
		config.RetryLost = rapid.Bool().Draw(t, "retry lost")
		if rapid.Bool().Draw(t, "by time") {
			config.RoundsPerEpoch, config.EpochTime = 0, 100*second
		}
		model := testModel()
		model.ColdStartWarmupSteps = rapid.Uint32Range(0, 1).Draw(t, "cold start warmup steps")
		s, err := New("walk", host, config, model)
		if err != nil {
			t.Fatal(err)
		}
		now, nonce := uint64(1_000_000), uint64(0)
		names := []string{"a", "b", "c", "d", "e"}
		early := predict(&s)
		for range 150 {
			last := predict(&s)
			id := clientID(rapid.SampledFrom(names).Draw(t, "client"))
			a := honestAction(&s, id)
			switch rapid.IntRange(0, 40).Draw(t, "unusual") {
			case 0:
				a = Withdraw{Client: id}
			case 1:
				id, a = host, SetPaused{Paused: s.RunState != Paused}
			case 2, 3, 4, 5, 6:
				a = Offer{Step: s.Progress.Step, Level: rapid.SampledFrom([]uint8{60, 80, 83, 90}).Draw(t, "level")}
			}
			if a != nil {
				nonce++
				_ = s.Apply(id, nonce, a)
			}
			if rapid.IntRange(0, 2).Draw(t, "time") == 0 {
				now += rapid.Uint64Range(0, 40*second).Draw(t, "passed")
			}
			last = predict(&s)
			if !s.Tick(now, testDraw(rapid.Uint64().Draw(t, "seed"))) {
				continue
			}
			last.check(t, &s)
			if s.RunState != RoundTrain || last.state.RunState == RoundTrain {
				continue
			}
			// The same as predicted at the start of the previous round.
			sameMembers := slices.Equal(early.round.Members, last.round.Members) && early.state.Progress.Epoch == s.Progress.Epoch
			if early.ok && early.round.Step == s.Progress.Step && sameMembers {
				early.check(t, &s)
				ahead++
			}
			early = predict(&s)
		}
	})
	if ahead < 5 && !testing.Short() { // depends on the random actions
		t.Errorf("only %d rounds were known a round ahead", ahead)
	}
}

// TestBatchSeedsComeFromTheChain checks that batch seeds come from the seed chain of the previous
// round.
func TestBatchSeedsComeFromTheChain(t *testing.T) {
	config := testConfig()
	config.RoundsPerEpoch = 20
	s := newRun(t, config, "a", "b", "c")
	seen := map[uint64]bool{}
	for range 10 {
		chain, next := s.SeedChain, s.Progress.Step+1
		if want := s.CurrentRound(); want.Seed != le.Uint64(chain[:8]) || want.BatchSeed == want.Seed {
			t.Fatalf("seeds %x and %x from chain %x", want.Seed, want.BatchSeed, chain)
		}
		s.step()
		round := s.CurrentRound()
		if round.Step != next || round.BatchSeed != le.Uint64(chain[8:16]) {
			t.Fatalf("step %d has batch seed %x, the chain was %x", round.Step, round.BatchSeed, chain)
		}
		if seen[round.Seed] || seen[round.BatchSeed] {
			t.Fatal("a seed occurred twice")
		}
		seen[round.Seed], seen[round.BatchSeed] = true, true
	}
}

// TestWitnessesAreNotKnownBefore checks that the host's draw at the start of a round changes the
// witnesses of the round, but not the assignment of batches.
func TestWitnessesAreNotKnownBefore(t *testing.T) {
	config := testConfig()
	config.WitnessNodes, config.VerificationPercent = 1, 40
	s := newRun(t, config, "a", "b", "c", "d", "e")
	s.witnessAll()
	s.until(RoundWitness)
	prediction, ok := s.NextRound()
	if !ok {
		t.Fatal("no next round")
	}
	witnesses := map[int]bool{}
	for seed := range uint64(60) {
		next := s.Clone()
		next.Tick(s.now, testDraw(seed))
		round := next.CurrentRound()
		if !slices.Equal(prediction.Assignments(config), round.Assignments(config)) {
			t.Fatalf("seed %d changes the batches", seed)
		}
		witnesses[round.ElectedWitnesses(config)[0]] = true
	}
	if len(witnesses) != 5 {
		t.Errorf("%d of 5 members witness in 60 draws", len(witnesses))
	}
}

// TestNoRoundFollows checks that NextRound returns no round in the last round of an epoch and in
// phases without rounds.
func TestNoRoundFollows(t *testing.T) {
	for name, alter := range map[string]func(*run){
		"last round of the epoch": func(s *run) { s.step() },
		"last step of the run":    func(s *run) { s.Config.TotalSteps = 1 },
		"last step of a time":     func(s *run) { s.Epoch.LastStep = 1 },
		"a pause is pending":      func(s *run) { s.must("host", SetPaused{Paused: true}) },
		"too few members are left": func(s *run) {
			s.must("a", Withdraw{Client: clientID("a")})
			s.must("b", Withdraw{Client: clientID("b")})
		},
		"Cooldown": func(s *run) { s.step(); s.step() },
		"no quorum can come": func(s *run) {
			s.Config.MinClients = 1
			s.must("a", Withdraw{Client: clientID("a")})
			s.must("b", Withdraw{Client: clientID("b")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRun(t, testConfig(), "a", "b", "c")
			if _, ok := s.NextRound(); !ok {
				t.Fatal("NextRound predicts no round in the first round")
			}
			alter(s)
			if next, ok := s.NextRound(); ok {
				t.Errorf("NextRound predicts step %d in %s of step %d", next.Step, s.RunState, s.Progress.Step)
			}
		})
	}
}
