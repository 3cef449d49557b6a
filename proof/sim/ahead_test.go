package sim

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// aheadRun counts what happens in a run with a lag of two rounds, in which all members train ahead.
type aheadRun struct {
	late, dropped int
	took          int64 // time of 30 rounds
}

// runAhead plays a run of honest members with equal machines, except for one whose trainings take longer by so many
// percent.
func runAhead(t *testing.T, seed uint64, audits uint8, train int64, longer int64) (r aheadRun) {
	t.Helper()
	const rounds = 30
	marked := make(map[coordinator.ClientID]bool)
	watch := rules{tick: func(s *coordinator.State, now uint64, draw [32]byte) bool {
		changed := s.Tick(now, draw)
		for _, m := range s.Epoch.Clients {
			if late := m.Lateness != coordinator.OnTime; late != marked[m.ID] {
				marked[m.ID] = late
				if late {
					r.late++
				}
			}
		}
		r.dropped = len(s.Epoch.Exited)
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
	r.took = w.now
	return r
}

// TestTrainingAheadCostsNobody has equal members train ahead, some of them a whole round, with long trainings. A member
// that trains in every round cannot train ahead as far as a member that had nothing to train. It is not late.
func TestTrainingAheadCostsNobody(t *testing.T) {
	for _, audits := range []uint8{0, 30} {
		for seed := uint64(1); seed <= 2; seed++ {
			if r := runAhead(t, seed, audits, 9*second, 0); r.late+r.dropped > 0 {
				t.Errorf("%d %% audits, seed %d: %d late marks, %d dropped", audits, seed, r.late, r.dropped)
			}
		}
	}
}

// TestSlowMemberAmongMembersAhead wants a member that is slower by a tenth to be on time, and one that needs twice the
// time of the others to slow down few rounds.
func TestSlowMemberAmongMembersAhead(t *testing.T) {
	even, tenth, double := runAhead(t, 1, 0, 9*second, 0), runAhead(t, 1, 0, 9*second, 10), runAhead(t, 1, 0, 9*second, 100)
	t.Logf("30 rounds took %d, %d and %d s", even.took/second, tenth.took/second, double.took/second)
	if tenth.late > 0 {
		t.Errorf("a member slower by a tenth has %d late marks", tenth.late)
	}
	if double.late == 0 || double.took > even.took*5/4 {
		t.Errorf("a member that needs twice the time has %d late marks, and makes the run take %d s in place of %d", double.late, double.took/second, even.took/second)
	}
}
