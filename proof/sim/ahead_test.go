package sim

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// aheadRun has the counts of a run.
type aheadRun struct {
	late    int    // members that were late
	dropped int    // members that lost their seats, counted each time
	first   uint32 // round that dropped a member first
	took    int64  // time of 30 rounds
}

// aheadPlan is the plan of a run of honest members with two kinds of machines.
type aheadPlan struct {
	clients  int
	seed     uint64
	audits   uint8 // verification_percent
	applyLag uint32
	slow     int   // slower machines
	longer   int64 // additional training time of these machines, in percent

	batch    uint32 // sequences of a round; 0: 24
	sequence int64  // a training takes this time for each sequence; 0: a time that does not depend on them
	shares   bool   // members offer their speeds, which determine their batches
}

// runAhead simulates a run of honest members. On most machines, a training takes 9 s.
func runAhead(t *testing.T, plan aheadPlan) (r aheadRun) {
	t.Helper()
	const rounds, train = 30, 9 * second
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
	if plan.batch == 0 {
		plan.batch = 24
	}
	w := newWorld(Options{Seed: plan.seed, Clients: plan.clients, Rounds: rounds, Faults: scenario.NoFaults, Shares: plan.shares, rules: watch})
	defer w.workers.Close()
	w.plan.ApplyLag = plan.applyLag
	k := &w.plan.Config
	k.VerificationPercent, k.WitnessNodes = plan.audits, 0
	k.MaxRoundTrainTime, k.RoundWitnessTime = uint64(3*train/1_000_000+8000), 3000
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps = rounds, 0, rounds
	k.GlobalBatchSizeStart, k.GlobalBatchSizeEnd, k.GlobalBatchSizeWarmupTokens = plan.batch, plan.batch, 0
	for i, m := range w.machines {
		m.trainTime, m.trainLeast, m.sequence = train, train*9/10, plan.sequence
		if i < plan.slow {
			m.trainTime, m.trainLeast, m.sequence = train*(100+plan.longer)/100, train*(95+plan.longer)/100, plan.sequence*(100+plan.longer)/100
		}
	}
	w.begin()
	w.loop()
	if w.violation != nil {
		t.Error(w.violation)
	}
	r.late, r.dropped, r.took = len(late), len(dropped), w.now
	for m := range dropped {
		if r.first == 0 || m.step < r.first {
			r.first = m.step
		}
	}
	return r
}

// TestTrainingAheadCostsNobody has equal members that train ahead, some of them a whole round, with
// long trainings. A member that trains in every round cannot train ahead as far as a member without
// a batch in a round, but it must not be late either.
func TestTrainingAheadCostsNobody(t *testing.T) {
	for _, audits := range []uint8{0, 30} {
		for seed := uint64(1); seed <= 2; seed++ {
			if r := runAhead(t, aheadPlan{clients: 12, seed: seed, audits: audits, applyLag: 2}); r.late+r.dropped > 0 {
				t.Errorf("%d %% audits, seed %d: %d late, %d dropped", audits, seed, r.late, r.dropped)
			}
		}
	}
}

// TestSlowMemberAmongMembersAhead checks that a member that is slower by a tenth is on time, and that a member that
// needs twice the usual time slows down few rounds.
func TestSlowMemberAmongMembersAhead(t *testing.T) {
	run := func(longer int64) aheadRun {
		return runAhead(t, aheadPlan{clients: 12, seed: 1, applyLag: 2, slow: 1, longer: longer})
	}
	even, tenth, double := run(0), run(10), run(100)
	t.Logf("30 rounds took %d, %d and %d s", even.took/second, tenth.took/second, double.took/second)
	if tenth.late > 0 {
		t.Errorf("with a member slower by a tenth %d members are late", tenth.late)
	}
	if double.late == 0 || double.took > even.took*5/4 {
		t.Errorf("with a member that needs twice the time %d members are late, and it makes the run take %d s in place of %d", double.late, double.took/second, even.took/second)
	}
}

// TestTwoThirdsSetThePace has members that need 43 % more time, and are more than a third. Because of
// audits, the fast members may be two thirds of a round's trainers. Witnesses must nevertheless wait for
// the slow members.
func TestTwoThirdsSetThePace(t *testing.T) {
	for _, plan := range []aheadPlan{
		{clients: 8, seed: 1, slow: 4}, {clients: 8, seed: 12, slow: 3}, {clients: 8, seed: 20, slow: 3}, {clients: 12, seed: 1, slow: 5},
	} {
		plan.audits, plan.longer = 25, 43
		for plan.applyLag = 1; plan.applyLag <= 2; plan.applyLag++ {
			if r := runAhead(t, plan); r.dropped > 0 {
				t.Errorf("%+v: %d late, %d dropped", plan, r.late, r.dropped)
			}
		}
	}
}

// TestLargerBatchesCostNobody has equal members in rounds in which some batches have an additional
// sequence. The members with larger batches must not be late.
func TestLargerBatchesCostNobody(t *testing.T) {
	for _, plan := range []aheadPlan{
		{clients: 12, batch: 13}, {clients: 12, batch: 16}, {clients: 12, batch: 12, audits: 25}, {clients: 4, batch: 5}, {clients: 3, batch: 4},
	} {
		plan.seed, plan.sequence = 1, 5*second
		for plan.applyLag = 1; plan.applyLag <= 2; plan.applyLag++ {
			if r := runAhead(t, plan); r.late > 0 {
				t.Errorf("%+v: %d late, %d dropped", plan, r.late, r.dropped)
			}
		}
	}
}

// TestMuchSlowerMemberKeepsItsSeat has a member whose training takes ten times as long for each sequence. The
// first round's batches are equal, so the member is late once. Then its batches follow its speed.
func TestMuchSlowerMemberKeepsItsSeat(t *testing.T) {
	for _, plan := range []aheadPlan{{applyLag: 1}, {applyLag: 2}, {applyLag: 1, audits: 25}} {
		plan.clients, plan.seed, plan.slow, plan.longer = 8, 1, 1, 900
		plan.batch, plan.sequence, plan.shares = 6400, second/100, true
		if r := runAhead(t, plan); r.late > 1 || r.dropped > 0 {
			t.Errorf("%+v: %d late, %d dropped", plan, r.late, r.dropped)
		}
	}
}

// TestDeadMemberLosesItsSeat checks that witnesses do not wait for a member that never delivers: with
// audits, it still loses its seat in the first rounds.
func TestDeadMemberLosesItsSeat(t *testing.T) {
	for lag := uint32(1); lag <= 2; lag++ {
		r := runAhead(t, aheadPlan{clients: 8, seed: 1, audits: 25, applyLag: lag, slow: 1, longer: 400})
		if r.late != 1 || r.first == 0 || r.first > 2 {
			t.Errorf("lag %d: %d late, the first member is dropped in round %d", lag, r.late, r.first)
		}
	}
}
