package sim

import (
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/random"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

// churn is a run of many honest members. In every epoch, some of them are killed and return.
type churn struct {
	world   *world
	random  *random.Source
	percent int
	atOnce  bool // all at once; otherwise each at a separate time
	span    int64

	epochs, lost int
	lasted       int64 // all runs together
	over         bool  // the journal is being replayed from now on
}

const (
	churnClients = 24
	churnEpochs  = 8
	churnRounds  = 6           // of an epoch
	churnSpan    = 25 * second // approximate duration of the rounds and the cooldown
)

// measure simulates the run and counts epochs that recorded no checkpoint.
func (c *churn) measure(t *testing.T, seed uint64) {
	t.Helper()
	o := Options{Seed: seed, Clients: churnClients, Rounds: churnEpochs * churnRounds, Faults: scenario.NoFaults}
	o.rules.tick = c.tick
	w := newWorld(o)
	defer w.workers.Close()
	w.plan.Faults = scenario.Crash // has the effect of kill: no round waits for the killed members
	k := &w.plan.Config
	k.RoundsPerEpoch, k.EpochTime, k.TotalSteps, k.VerificationPercent = churnRounds, 0, churnEpochs*churnRounds, 0
	k.WarmupTime, k.CooldownTime, k.MaxRoundTrainTime, k.RoundWitnessTime, k.WaitingForMembersExtraTime = 20_000, 15_000, 10_000, 1000, 3000
	k.InitMinClients, k.MinClients, k.WitnessNodes, k.ProbationSteps = churnClients/3, churnClients/4, 0, 8
	c.world, c.random, c.over = w, random.New(seed, "churn"), false
	w.begin()
	w.loop()
	c.lasted += w.now
	if v := w.violation; v != nil && v.Assertion != check.Progress { // a member that returned late has no final model
		t.Errorf("seed %d: %v", seed, v)
	}
}

func (c *churn) tick(s *coordinator.State, now uint64, draw [32]byte) bool {
	before, checkpoint := s.RunState, s.Model.Checkpoint
	changed := s.Tick(now, draw)
	switch {
	case c.over:
	case before == coordinator.Warmup && s.RunState == coordinator.RoundTrain && s.Progress.Epoch < churnEpochs-1:
		c.kill()
	case before == coordinator.Cooldown && s.RunState != coordinator.Cooldown:
		c.epochs++
		if s.Model.Checkpoint == checkpoint {
			c.lost++
		}
		c.over = s.RunState == coordinator.Finished
	}
	return changed
}

// kill removes some of the clients between the epoch's first round and its end. They return an
// epoch later.
func (c *churn) kill() {
	w := c.world
	moment := c.random.Between(0, c.span)
	for _, i := range c.random.Pick(churnClients, churnClients*c.percent/100) {
		at := moment
		if !c.atOnce {
			at = c.random.Between(0, c.span)
		}
		w.after(at, func() {
			w.machines[i].crash()
			w.after(c.span, w.machines[i].start)
		})
	}
}

// TestChurn bounds the share of the epochs of honest runs that record no checkpoint because members
// vanish: the remaining members are too few for a quorum, or the run has not yet noticed the absent
// members. The numbers of epochs depend on the timing of the simulated clients, so the test limits
// them and compares no exact number. The README has the limits.
func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: simulates many runs")
	}
	for name, test := range map[string]struct {
		percent int // percentage of the members that vanish in each epoch
		atOnce  bool
		limit   float64 // maximum share of the epochs without a checkpoint
	}{
		"30 % one by one": {30, false, 0},
		"50 % one by one": {50, false, 0},
		"30 % at once":    {30, true, 0},
		"50 % at once":    {50, true, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			c := churn{percent: test.percent, atOnce: test.atOnce, span: churnSpan}
			for seed := uint64(1); seed <= 2; seed++ {
				c.measure(t, seed)
			}
			t.Logf("%d of %d epochs recorded no checkpoint; an epoch took %.1f s", c.lost, c.epochs, float64(c.lasted)/float64(second)/float64(c.epochs))
			if c.epochs < 2*churnEpochs || float64(c.lost) > test.limit*float64(c.epochs) {
				t.Errorf("%d of %d epochs recorded no checkpoint, want at least %d epochs and a share of at most %v", c.lost, c.epochs, 2*churnEpochs, test.limit)
			}
		})
	}
}
