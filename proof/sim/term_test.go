package sim

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

const termTestRounds = 80 // of one epoch: two terms and a half

// inOneEpoch simulates a run of one long epoch and returns the violation, if any.
func inOneEpoch(seed uint64, faults scenario.Faults, r rules) *check.Violation {
	w := newWorld(Options{Seed: seed, Clients: 9, Rounds: termTestRounds, Faults: faults, rules: r})
	defer w.workers.Close()
	k := &w.plan.Config
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps = termTestRounds, 0, termTestRounds
	k.WarmupTime, k.MaxRoundTrainTime, k.RoundWitnessTime = 20_000, 10_000, 1000
	k.InitMinClients, k.MinClients, k.WitnessNodes = min(k.InitMinClients, 6), 1, 0
	w.begin()
	w.loop()
	return w.violation
}

// TestTermsOfLongEpochs simulates epochs of several terms, in which members are late, leave and
// return.
func TestTermsOfLongEpochs(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates runs")
	}
	forgiven := 0
	watch := rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		before := s.Clone()
		changed := s.Tick(now, draw)
		if s.RunState != coordinator.RoundTrain || before.RunState != coordinator.RoundWitness {
			return changed
		}
		for _, m := range slices.Concat(before.Epoch.Clients, before.Epoch.Exited) {
			if now, ok := s.Member(m.ID); ok && m.Lateness != coordinator.OnTime && now.Lateness == coordinator.OnTime {
				forgiven++
			}
		}
		return changed
	}}
	for _, faults := range []scenario.Faults{scenario.SilentTrainer, scenario.Crash | scenario.Drop, scenario.Starve | scenario.HostCrash, scenario.Coalition} {
		for seed := uint64(1); seed <= 3; seed++ {
			if v := inOneEpoch(seed, faults, watch); v != nil && v.Assertion != check.Progress { // a member may return after the end
				t.Errorf("%v, seed %d: %v", faults, seed, v)
			}
		}
	}
	t.Logf("forgiven: %d", forgiven)
	if forgiven == 0 {
		t.Error("no member was late when a term began")
	}
}

// TestCheckerKnowsTerms breaks the rule of terms, and checks that the checker detects it.
func TestCheckerKnowsTerms(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates runs")
	}
	forgive := func(s *coordinator.State) {
		for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
			for i := range clients {
				clients[i].Lateness, clients[i].Returns = coordinator.OnTime, 0
			}
		}
	}
	newRound := func(change func(s *coordinator.State, before coordinator.State)) rules {
		return rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
			before := s.Clone()
			changed := s.Tick(now, draw)
			if s.RunState == coordinator.RoundTrain && before.RunState == coordinator.RoundWitness {
				change(s, before)
			}
			return changed
		}}
	}
	for name, rules := range map[string]rules{
		"each round forgives": newRound(func(s *coordinator.State, _ coordinator.State) { forgive(s) }),
		"no term forgives": newRound(func(s *coordinator.State, before coordinator.State) {
			for i := range s.Epoch.Clients {
				if m, ok := before.Member(s.Epoch.Clients[i].ID); ok && m.Lateness >= coordinator.Late {
					s.Epoch.Clients[i].Lateness = m.Lateness
				}
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 20; seed++ {
				switch v := inOneEpoch(seed, scenario.SilentTrainer, rules); {
				case v == nil || v.Assertion == check.Progress:
				case v.Assertion != check.NotFramed && v.Assertion != check.OwnSeat:
					t.Fatalf("seed %d: found by an unexpected assertion: %v", seed, v)
				default:
					t.Logf("found by seed %d: %v", seed, v)
					return
				}
			}
			t.Error("not found in 20 seeds")
		})
	}
}
