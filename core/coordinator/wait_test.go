package coordinator

import (
	"slices"
	"strconv"
	"testing"
)

// TestFailedEpochMakesNoStrangers has a member lie that it holds the run's model, so that an epoch fails, while
// those that hold it are away. Whoever of them comes back in time has its seat among strangers without a draw, and
// the run goes on from its model.
func TestFailedEpochMakesNoStrangers(t *testing.T) {
	for _, failures := range []int{1, 2, 3} {
		r := membersAway(t)
		r.must("stranger", Join{Epoch: r.Progress.Epoch})
		r.must("stranger", Withdraw{Client: clientID("stranger")})
		for range failures {
			r.must("c", Join{Epoch: r.Progress.Epoch, Holds: clientID("x")})
			r.until(Cooldown)
			r.until(WaitingForMembers)
			if slices.ContainsFunc(r.Departed, Client.isNew) {
				t.Errorf("a stranger is remembered:\n%s", r.String())
			}
		}
		for i := range 8 {
			r.must("stranger"+strconv.Itoa(i), Join{Epoch: r.Progress.Epoch})
		}
		for range r.Config.WarmupTime/second - 1 {
			r.now += second
			r.Tick(r.now, r.testDraw(r.now))
		}
		r.must("b", Join{Epoch: r.Progress.Epoch, Holds: clientID("x")})
		r.startTraining()
		if c := r.Model.Checkpoint; c.Step != 2 || !c.FromPeers() {
			t.Errorf("%d failed epochs: the run goes on from %s", failures, r.String())
		}
	}
}
