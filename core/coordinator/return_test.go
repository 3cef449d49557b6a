package coordinator

import "testing"

// TestReturnsCostNothing: a member that crashes again and again and returns is on probation no longer than
// before, whether results are audited or not: its results count, and it may accuse.
func TestReturnsCostNothing(t *testing.T) {
	for _, verification := range []uint8{0, 40} {
		config := longConfig()
		config.VerificationPercent, config.ProbationSteps = verification, 8
		r := newRun(t, config, memberNames(12)...)
		r.rounds(10) // past its probation
		for returns := 1; returns <= MaxReturns; returns++ {
			client, _ := r.Member(member(3))
			before := client.ProbationUntil
			r.mustID(member(3), Withdraw{Client: member(3)})
			r.round()
			r.mustID(member(3), Return{})
			if client, _ = r.Member(member(3)); client.ProbationUntil != before {
				t.Errorf("%d %%: after %d returns its probation ended in step %d, not %d", verification, returns, client.ProbationUntil, before)
			}
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
			r.round()
			if m, ok := r.CurrentRound().MemberIndex(member(3)); !ok || r.CurrentRound().Warming.Has(m) {
				t.Errorf("%d %%: after %d returns its result does not count", verification, returns)
			}
		}
		if err := r.MayAccuse(member(3), Accuse{Step: 1, Client: member(4), Fault: FaultResult}); err != nil {
			t.Errorf("%d %%: may not accuse: %v", verification, err)
		}
	}
}

// TestReturnsCostNoSeat: a machine that crashed twice and is then dropped has its seat in the next
// epoch, as if it had not returned; one that was on probation before it is drawn as before.
func TestReturnsCostNoSeat(t *testing.T) {
	for _, test := range []struct {
		name    string
		returns int
		begins  uint32 // its probation ends so many steps after the epoch's start
		audits  uint8
		keeps   bool
	}{
		{"dropped", 0, 0, 40, true},
		{"returned once", 1, 0, 40, true},
		{"returned twice", 2, 0, 40, true},
		{"returned three times", 3, 0, 40, true},
		{"on probation", 0, 20, 40, false},
		{"on probation, returned once", 1, 20, 40, false},
		{"on probation, returned twice", 2, 20, 40, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := longConfig()
			config.VerificationPercent, config.ProbationSteps = test.audits, 8
			r := newRun(t, config, memberNames(12)...)
			r.rounds(9)
			r.Config.RoundsPerEpoch = r.Progress.Step - r.Epoch.StartStep + 1
			r.finishEpoch("x")
			r.Config.RoundsPerEpoch = 40
			r.startTraining()
			client, _ := r.Member(member(3))
			client.ProbationUntil = max(1, client.ProbationUntil, r.Epoch.StartStep+test.begins-min(1, 1-min(1, test.begins)))
			for range test.returns {
				r.mustID(member(3), Withdraw{Client: member(3)})
				r.round()
				r.mustID(member(3), Return{Epoch: r.Progress.Epoch})
				r.round()
			}
			client, _ = r.Member(member(3))
			client.State = Dropped
			r.round()
			r.mustID(member(3), Join{Epoch: r.Progress.Epoch})
			if waits := &r.Pending[indexOf(r.Pending, member(3))]; waits.isNew() == test.keeps {
				t.Errorf("it waits as %+v", *waits)
			}
		})
	}
}
