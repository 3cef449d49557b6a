package sim

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// TestAbandonedEpoch has seven of nine members that vanish permanently, one after the other, with
// min_clients set to one. The epoch must end soon after. The checker must find a host that lets it
// continue.
func TestAbandonedEpoch(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates runs")
	}
	ended, caught := 0, 0
	const seeds = 2
	for seed := uint64(1); seed <= seeds; seed++ {
		steps, violation := abandon(seed, false)
		if violation != nil && violation.Assertion != check.Progress { // the vanished members have no final model
			t.Errorf("seed %d: %v", seed, violation)
		}
		if steps < abandonedRounds {
			ended++
		}
		if _, violation = abandon(seed, true); violation != nil && violation.Assertion == check.CommitKept {
			caught++
		}
	}
	t.Logf("of %d epochs, %d ended before their time, and %d that went on were found", seeds, ended, caught)
	if ended != seeds || caught != seeds {
		t.Error("an epoch continued without enough members to record it, or such an epoch was not found")
	}
}

const abandonedRounds = 400

// abandon simulates a run and returns the number of rounds in its first epoch. A host that
// continues treats all vanished members as members that left in this round.
func abandon(seed uint64, goesOn bool) (rounds uint32, violation *check.Violation) {
	o := Options{Seed: seed, Clients: 9, Rounds: abandonedRounds, Faults: scenario.NoFaults}
	var w *world
	o.rules = rules{reports: true, tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		before := s.RunState
		changed := false
		if goesOn && before == coordinator.RoundWitness {
			changed = tickOfFewer(s, now, draw)
		} else {
			changed = s.Tick(now, draw)
		}
		if s.Progress.Epoch == 0 && before == coordinator.Warmup && s.RunState == coordinator.RoundTrain {
			for i := range 7 {
				w.after(int64(i+1)*25*second, w.machines[i].crash)
			}
		}
		if s.Progress.Epoch == 0 && before != coordinator.Cooldown && s.RunState == coordinator.Cooldown {
			rounds = s.CurrentRound().Height + 1
		}
		return changed
	}}
	w = longEpoch(o, 9)
	defer w.workers.Close()
	w.begin()
	w.loop()
	return rounds, w.violation
}

// TestAbandonedEpochLosesLittle has seven of nine members that store intermediate checkpoints,
// crash together or one after the other, and return. If they crash together, the round has no
// quorum, so the rules of abandoned epochs have no effect. If the few remaining members can
// continue, and the crashed members return within four rounds, nothing is lost. If they return
// later, the lost rounds are at most: the rounds since the newest intermediate checkpoint, the
// rounds until the last crash was noticed, and four.
func TestAbandonedEpochLosesLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates runs")
	}
	const commitEvery, noticed = abandonedReturns / 20, 4
	for _, c := range []struct{ apart, back, limit int64 }{
		{1, 40, commitEvery}, {20, 2, 0}, {20, 10, commitEvery + noticed + 4}, {20, 40, commitEvery + noticed + 4},
	} {
		for seed := uint64(1); seed <= 2; seed++ {
			lost, violation := crashAndReturn(seed, c.apart, c.back)
			if violation != nil && violation.Assertion != check.Progress { // a member that returns after the end has no final model
				t.Errorf("seed %d: %v", seed, violation)
			}
			t.Logf("seed %d: %d s apart, back %d s after the last: %d rounds lost", seed, c.apart, c.back, lost)
			if lost > c.limit {
				t.Errorf("seed %d: %d s apart, back %d s after the last: %d rounds are lost, want %d at most", seed, c.apart, c.back, lost, c.limit)
			}
		}
	}
}

// longEpoch plans a run with a single epoch that has all rounds of the run and begins when enough
// clients wait.
func longEpoch(o Options, clients uint16) *world {
	w := newWorld(o)
	w.plan.Faults = scenario.Crash
	k := &w.plan.Config
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps, k.VerificationPercent = uint32(o.Rounds), 0, uint32(o.Rounds), 0
	k.WarmupTime, k.CooldownTime, k.MaxRoundTrainTime, k.RoundWitnessTime = 20_000, 15_000, 10_000, 1000
	k.InitMinClients, k.MinClients, k.WitnessNodes = clients, 1, 0
	return w
}

const abandonedReturns = 120 // rounds in the only epoch of a run of TestAbandonedEpochLosesLittle

// crashAndReturn simulates a run of TestAbandonedEpochLosesLittle and returns the number of counted
// rounds that are missing in its model.
func crashAndReturn(seed uint64, apart, back int64) (lost int64, violation *check.Violation) {
	o := Options{Seed: seed, Clients: 9, Rounds: abandonedReturns, Faults: scenario.NoFaults}
	var w *world
	crashed := false
	o.rules.tick = func(s *coordinator.State, now uint64, draw [32]byte) bool {
		changed := s.Tick(now, draw)
		if !crashed && s.Progress.Step == 10 {
			crashed = true
			for i := range 7 {
				w.after(int64(i+1)*apart*second, w.machines[i].crash)
				w.after((7*apart+back)*second, w.machines[i].start)
			}
		}
		lost = 0
		for _, l := range s.RollbackGaps {
			lost += int64(l.Last - l.First + 1)
		}
		return changed
	}
	w = longEpoch(o, 1)
	defer w.workers.Close()
	w.begin()
	w.loop()
	return lost, w.violation
}

// tickOfFewer ticks as if all departed members had left in the running round.
func tickOfFewer(s *coordinator.State, now uint64, draw [32]byte) bool {
	changed := s.Clone()
	for i := range changed.Epoch.Exited {
		changed.Epoch.Exited[i].ExitedHeight = s.CurrentRound().Height
	}
	if !changed.Tick(now, draw) {
		return false
	}
	for i := range s.Epoch.Exited {
		changed.Epoch.Exited[i].ExitedHeight = s.Epoch.Exited[i].ExitedHeight
	}
	*s = changed
	return true
}

// TestFallingBackWaits has all members crash in Warmup and return without their model, so that no
// member has it. Before a run continues from an older model, it must wait for the members that may
// have the newer model, longer if it loses more. The checker must find a host that continues at
// once, or after the time of a Warmup.
func TestFallingBackWaits(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates runs")
	}
	atOnce, tooSoon := 0, 0
	for seed := uint64(1); seed <= 8; seed++ {
		if lost, violation := fallBack(seed, rules{reports: true}); violation != nil || !lost {
			t.Errorf("seed %d: fell back: %t, %v", seed, lost, violation)
		}
		if _, violation := fallBack(seed, fallsAtOnce()); violation != nil && violation.Assertion == check.CommitKept {
			atOnce++
		}
		if _, violation := fallBack(seed, fallsTooSoon()); violation != nil && violation.Assertion == check.CommitKept {
			tooSoon++
		}
	}
	if atOnce == 0 || tooSoon == 0 { // it may begin with so few members that none crashes
		t.Errorf("found %d of 8 hosts that fall back at once, %d of 8 that fall back after a Warmup's time", atOnce, tooSoon)
	}
}

// fallBack simulates a run of TestFallingBackWaits and reports whether it lost steps.
func fallBack(seed uint64, host rules) (lost bool, violation *check.Violation) {
	o := Options{Seed: seed, Clients: 3, Rounds: 12, Faults: scenario.NoFaults, rules: host}
	tick := host.tick
	if tick == nil {
		tick = (*coordinator.State).Tick
	}
	var w *world
	crashed := false
	o.rules.tick = func(s *coordinator.State, now uint64, draw [32]byte) bool {
		before := s.RunState
		changed := tick(s, now, draw)
		if before == coordinator.WaitingForMembers && s.RunState == coordinator.Warmup && s.Progress.Epoch == 1 && !crashed {
			crashed = true
			w.after(0, func() {
				for _, m := range w.machines {
					m.crash()
					w.after(20*second, m.start)
				}
			})
		}
		lost = lost || len(s.RollbackGaps) > 0
		return changed
	}
	w = newWorld(o)
	defer w.workers.Close()
	w.plan.Faults = scenario.Crash
	k := &w.plan.Config
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps, k.VerificationPercent = 4, 0, 12, 0
	k.WarmupTime, k.CooldownTime, k.MaxRoundTrainTime, k.RoundWitnessTime, k.WaitingForMembersExtraTime = 60_000, 15_000, 600_000, 1000, 3000
	k.InitMinClients, k.MinClients, k.WitnessNodes = 1, 1, 0
	w.begin()
	w.loop()
	return lost, w.violation
}

// fallsAtOnce does not wait once enough members are present, even if none of them has the model.
func fallsAtOnce() rules {
	return instead(coordinator.WaitingForMembers, func(s *coordinator.State) {
		if len(s.Pending) >= int(s.Config.InitMinClients) {
			s.MinimumSince = 1
		}
	})
}

// fallsTooSoon waits for the time of a Warmup, however much is lost.
func fallsTooSoon() rules {
	return rules{reports: true, tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		waits := s.MinimumSince != 0
		changed := s.Tick(now, draw)
		if s.MinimumSince == now && !waits {
			s.MinimumSince -= max(s.PhaseTime(), s.Config.WarmupTime) - s.Config.WarmupTime
		}
		return changed
	}}
}
