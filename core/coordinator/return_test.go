package coordinator

import (
	"slices"
	"testing"
)

// TestReturnsCostNothing checks that repeated crashes and returns do not extend a member's
// probation, with and without audits: its results count, and it may accuse.
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

// TestDroppedMembersGoOn checks a dropped member that joins again, in the same epoch or the next.
// It keeps its seat and its progress on probation, however often it crashed.
func TestDroppedMembersGoOn(t *testing.T) {
	for _, returns := range []int{0, 1, 3} {
		for _, probation := range []uint32{0, 20} {
			for _, later := range []bool{false, true} {
				config := longConfig()
				config.ProbationSteps = 8
				r := newRun(t, config, memberNames(12)...)
				r.rounds(9)
				nextEpoch := func() {
					r.Config.RoundsPerEpoch = r.Progress.Step - r.Epoch.StartStep + 1
					r.finishEpoch("x")
					r.Config.RoundsPerEpoch = 40
					r.startTraining()
				}
				nextEpoch()
				client, _ := r.Member(member(3))
				client.ProbationUntil += probation
				until := client.ProbationUntil
				for range returns {
					r.mustID(member(3), Withdraw{Client: member(3)})
					r.round()
					r.mustID(member(3), Return{Epoch: r.Progress.Epoch})
					r.round()
				}
				client, _ = r.Member(member(3))
				client.State = Dropped
				r.round()
				if later {
					nextEpoch()
				}
				r.mustID(member(3), Join{Epoch: r.Progress.Epoch})
				nextEpoch()
				client, ok := r.Member(member(3))
				if !ok || client.ProbationUntil != until {
					t.Fatalf("%d returns, probation of %d more, in the next epoch: %t: member: %t %+v, want a probation until %d", returns, probation, later, ok, client, until)
				}
				if i, _ := r.CurrentRound().MemberIndex(member(3)); r.CurrentRound().Warming.Has(i) != (probation > 0) && slices.Contains(r.CurrentRound().Owners(r.Config), i) {
					t.Errorf("%d returns, probation of %d more: its result counts: %t", returns, probation, probation > 0)
				}
			}
		}
	}
}
