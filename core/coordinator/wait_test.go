package coordinator

import (
	"slices"
	"strconv"
	"testing"
)

// TestHolderGetsItsSeatAfterAFailedEpoch checks a run whose model holders are away. A member falsely
// claims to hold the model, so an epoch fails. A holder that comes back in time gets its seat
// without a draw, although unknown clients wait, and the run continues from its model.
func TestHolderGetsItsSeatAfterAFailedEpoch(t *testing.T) {
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
			t.Errorf("%d failed epochs: the run continues from %s", failures, r.String())
		}
	}
}

// TestLeavingAndRejoiningDoesNotExtendTheWait checks a run in which some of three clients that wait
// for the run's model leave and join again. The wait ends on time anyway. It restarts only if all
// of them leave or only unknown clients remain.
func TestLeavingAndRejoiningDoesNotExtendTheWait(t *testing.T) {
	for name, test := range map[string]struct {
		away  []string // clients that leave and join again in each interval
		again bool
	}{
		"a stranger":              {[]string{"stranger"}, false},
		"a member":                {[]string{"a"}, false},
		"all but a member":        {[]string{"stranger", "a"}, false},
		"all members":             {[]string{"a", "b"}, true},
		"all clients":             {[]string{"a", "b", "stranger"}, true},
		"no client, as a control": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := membersAway(t)
			r.Config.InitMinClients = 3
			r.join("a", "b", "stranger")
			begin := r.now
			pass := func(times uint64) {
				for range times {
					r.now += second
					if at, ok := r.Due(r.now - second + 1); r.Tick(r.now, r.testDraw(r.now)) != (ok && at <= r.now) {
						t.Fatalf("due at %d, %t, now it is %d", at, ok, r.now)
					}
				}
			}
			for r.RunState == WaitingForMembers && r.now < begin+5*r.Config.WarmupTime {
				pass(r.Config.WarmupTime / second / 4)
				if r.RunState != WaitingForMembers {
					break
				}
				for _, name := range test.away {
					r.must(name, Withdraw{Client: clientID(name)})
				}
				pass(2)
				r.join(test.away...)
				pass(2)
			}
			if waits := r.RunState == WaitingForMembers; waits != test.again {
				t.Errorf("the run waits: %t, after %d ms, with a Warmup of %d", waits, r.now-begin, r.Config.WarmupTime)
			}
		})
	}
}

// TestFalseClaimsToHoldTheModel shows the cost of two false claims, in a run of 5000 steps of 80 s
// whose model holders are all away.
//
// First, a member falsely claims to hold an earlier model. After a part of the wait the run forgets
// the newest model and the models between the two. A holder without an older model then holds no
// model that the run knows.
//
// Second, an unknown client falsely claims to hold the newest model. It is a member after the failed
// epoch, and after the next wait the run continues from its origin.
func TestFalseClaimsToHoldTheModel(t *testing.T) {
	away := func() *run {
		r := membersAway(t)
		r.Config.MaxRoundTrainTime, r.Config.TotalSteps = 80*second, 100_000
		r.Model.Checkpoint.Step, r.Progress.Step = 5000, 5001
		r.Earlier = []Recorded{{Step: 4800, Digest: clientID("w")}, {Step: 4950, Digest: clientID("y")}}
		return r
	}
	wait := func(r *run) (took uint64) {
		begin := r.now
		for r.RunState == WaitingForMembers && r.now < begin+24*3600*second {
			r.now += second
			r.Tick(r.now, r.testDraw(r.now))
		}
		return (r.now - begin) / second
	}
	r := away()
	r.must("a", Join{Epoch: r.Progress.Epoch, Holds: clientID("w")})
	if took := wait(r); took != 200*80/16+1 || r.Model.Checkpoint.Step != 4800 {
		t.Errorf("an earlier model: after %d s\n%s", took, r.String())
	}
	r.until(WaitingForMembers)
	for _, holds := range []string{"x", "y"} {
		if model, earlier := r.recordedAs(clientID(holds)); model || earlier != 0 {
			t.Errorf("a newer model that a holder brings back is still known: %t, %d", model, earlier)
		}
	}

	r = away()
	r.must("stranger", Join{Epoch: r.Progress.Epoch, Holds: clientID("x")})
	first := wait(r)
	r.until(WaitingForMembers)
	if r.Model.Checkpoint.Step != 5000 {
		t.Errorf("the first wait lost the model:\n%s", r.String())
	}
	r.join("stranger")
	if second := wait(r); first != 25_001 || second != 25_001 || r.Model.Checkpoint.FromPeers() {
		t.Errorf("a stranger: after %d s and %d s\n%s", first, second, r.String())
	}
}
