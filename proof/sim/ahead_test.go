package sim

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// aheadRun has the counts of a run with a lag of two rounds, in which all members train ahead.
type aheadRun struct {
	late    int   // members that were late
	dropped int   // members that lost their seats, counted each time
	took    int64 // time of 30 rounds
}

// runAhead simulates a run of honest members with equal machines, except for one machine whose
// trainings take longer. longer is in percent.
func runAhead(t *testing.T, seed uint64, audits uint8, train int64, longer int64) (r aheadRun) {
	t.Helper()
	const rounds = 30
	type mark struct {
		id   coordinator.ClientID
		step uint32
	}
	late, dropped := make(map[coordinator.ClientID]bool), make(map[mark]bool) // the host and its followers tick the same states
	watch := rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		changed := s.Tick(now, draw)
		for _, m := range s.Epoch.Clients {
			if m.Lateness != coordinator.OnTime {
				late[m.ID] = true
			}
		}
		for _, m := range s.Epoch.Exited {
			dropped[mark{m.ID, m.ExitedHeight}] = true
		}
		return changed
	}}
	w := newWorld(Options{Seed: seed, Clients: 12, Rounds: rounds, Faults: scenario.NoFaults, rules: watch})
	defer w.workers.Close()
	w.plan.ApplyLag = 2
	k := &w.plan.Config
	k.VerificationPercent, k.WitnessNodes = audits, 0
	k.MaxRoundTrainTime, k.RoundWitnessTime = uint64(3*train/1_000_000+8000), 3000
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps = rounds, 0, rounds
	k.GlobalBatchSizeStart, k.GlobalBatchSizeEnd, k.GlobalBatchSizeWarmupTokens = 24, 24, 0
	for i, m := range w.machines {
		m.trainTime, m.trainLeast = train, train*9/10
		if i == 0 {
			m.trainTime, m.trainLeast = train*(100+longer)/100, train*(95+longer)/100
		}
	}
	w.begin()
	w.loop()
	if w.violation != nil {
		t.Error(w.violation)
	}
	r.late, r.dropped, r.took = len(late), len(dropped), w.now
	return r
}

// TestTrainingAheadCostsNobody has equal members that train ahead, some of them a whole round, with
// long trainings. A member that trains in every round cannot train ahead as far as a member without
// a batch in a round, but it must not be late either.
func TestTrainingAheadCostsNobody(t *testing.T) {
	for _, audits := range []uint8{0, 30} {
		for seed := uint64(1); seed <= 2; seed++ {
			if r := runAhead(t, seed, audits, 9*second, 0); r.late+r.dropped > 0 {
				t.Errorf("%d %% audits, seed %d: %d late, %d dropped", audits, seed, r.late, r.dropped)
			}
		}
	}
}

// TestSlowMemberAmongMembersAhead checks that a member that is slower by a tenth is on time, and that a member that
// needs twice the usual time slows down few rounds.
func TestSlowMemberAmongMembersAhead(t *testing.T) {
	even, tenth, double := runAhead(t, 1, 0, 9*second, 0), runAhead(t, 1, 0, 9*second, 10), runAhead(t, 1, 0, 9*second, 100)
	t.Logf("30 rounds took %d, %d and %d s", even.took/second, tenth.took/second, double.took/second)
	if tenth.late > 0 {
		t.Errorf("with a member slower by a tenth %d members are late", tenth.late)
	}
	if double.late == 0 || double.took > even.took*5/4 {
		t.Errorf("with a member that needs twice the time %d members are late, and it makes the run take %d s in place of %d", double.late, double.took/second, even.took/second)
	}
}
