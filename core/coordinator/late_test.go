package coordinator

import "testing"

// longConfig returns a configuration with enough rounds to observe lasting effects.
func longConfig() Config {
	c := testConfig()
	c.RoundsPerEpoch, c.GlobalBatchSizeStart, c.GlobalBatchSizeEnd, c.TotalSteps = 40, 64, 64, 1000
	return c
}

// without plays a round in which the members of lost have no result and the members of dead send
// nothing. A live member accuses all members that can be accused. It returns the training time of
// the round.
func (r *run) without(dead []string, lost ...string) (trained uint64) {
	r.t.Helper()
	r.until(RoundTrain)
	begun, step := r.now, r.Progress.Step
	is := func(id ClientID, names []string) bool {
		for _, name := range names {
			if clientID(name) == id {
				return true
			}
		}
		return false
	}
	proof := r.witnessOf(append(lost, dead...)...)
	for _, i := range r.CurrentRound().ElectedWitnesses(r.Config) {
		if id := r.CurrentRound().Members[i]; !is(id, dead) && r.isHealthy(id) {
			r.mustID(id, proof)
		}
	}
	r.until(RoundWitness)
	trained = r.now - begun
	for r.Progress.Step == step {
		r.now += second
		r.Tick(r.now, testDraw(r.now))
	}
	if accused := r.Accusable(); len(accused) > 0 && r.RunState == RoundTrain {
		for _, c := range r.Epoch.Clients {
			if c.State == Healthy && !is(c.ID, dead) {
				r.mustID(c.ID, HealthCheck{Step: step, Clients: accused})
				break
			}
		}
	}
	return trained
}

// TestWithholderAfterACrashDelaysFewRounds checks a run of four members. One crashes, and after
// that a second one withholds its results. At most two rounds last their full time because of the
// second.
func TestWithholderAfterACrashDelaysFewRounds(t *testing.T) {
	s := newRun(t, longConfig(), "a", "b", "c", "d")
	for range 3 {
		s.without([]string{"b"})
	}
	full := 0
	for range 20 {
		if s.without(nil, "d") >= s.Config.MaxRoundTrainTime {
			full++
		}
	}
	if full > 2 {
		t.Errorf("%d rounds of one epoch last their whole time for one member; want 2", full)
	}
}

// TestCoalitionCannotUseUpTheLateCapacity checks a coalition of two of seven members. One colluding
// member is late on purpose and one honest member crashes. The second colluding member still cannot
// stall the rest of the epoch.
func TestCoalitionCannotUseUpTheLateCapacity(t *testing.T) {
	s := newRun(t, longConfig(), "a", "b", "c", "d", "e", "f", "g")
	s.without([]string{"a"}, "f") // f withholds its result once, and a has crashed
	s.without([]string{"a"})
	full := 0
	for range 20 {
		if s.without(nil, "g") >= s.Config.MaxRoundTrainTime {
			full++
		}
	}
	if full > 2 {
		t.Errorf("%d rounds of one epoch last their whole time for one member, want 2", full)
	}
}

// TestTwoThirdsCrash checks that six of nine members may crash one after the other. The remaining
// three members, ⌈9/3⌉, record the checkpoint.
func TestTwoThirdsCrash(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	s := newRun(t, longConfig(), names...)
	for gone := 1; gone <= 6; gone++ {
		for range 4 {
			if s.RunState != Cooldown {
				s.without(names[:gone])
			}
		}
		t.Logf("%d crashed: %d still count as healthy, %s in step %d", gone, s.HealthyCount(), s.RunState, s.Progress.Step)
	}
	s.until(Cooldown)
	for _, name := range names[6:] {
		s.must(name, ReportCheckpoint{Step: s.Progress.Step, Digest: clientID("x")})
	}
	s.until(WaitingForMembers)
	if s.Model.Checkpoint.Digest != clientID("x") {
		t.Error("the checkpoint that the remaining 3 members reported is lost")
	}
}
