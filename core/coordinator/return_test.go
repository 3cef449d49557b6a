package coordinator

import (
	"errors"
	"testing"
)

// TestReturnsCost: where results are audited, in a run that has a probation, who returns a second
// time into an epoch has no vote for as long as a newcomer.
func TestReturnsCost(t *testing.T) {
	for _, test := range []struct {
		name         string
		verification uint8
		probation    uint32
		permissioned bool
		costs        bool
	}{
		{"audits", 40, 8, false, true},
		{"no audits", 0, 8, false, false},
		{"no probation", 40, 0, false, false},
		{"everybody was admitted", 40, 8, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := longConfig()
			config.VerificationPercent, config.ProbationSteps = test.verification, test.probation
			r := newRunOf(t, Genesis{RunID: "walk", Host: host, Config: config, Model: testModel(), Permissioned: test.permissioned}, memberNames(12)...)
			r.rounds(10) // past its probation
			for returns := 1; returns <= MaxReturns; returns++ {
				client, _ := r.Member(member(3))
				before := client.ProbationUntil
				r.mustID(member(3), Withdraw{Client: member(3)})
				r.round()
				r.mustID(member(3), Return{})
				client, _ = r.Member(member(3))
				young := client.ProbationUntil > r.Progress.Step
				if !young && client.ProbationUntil != before {
					t.Errorf("after %d returns its probation ended in step %d, not %d", returns, client.ProbationUntil, before)
				}
				if young != (test.costs && returns > 1) || young && client.ProbationUntil != r.Progress.Step+8 {
					t.Errorf("after %d returns on probation until %d in step %d", returns, client.ProbationUntil, r.Progress.Step)
				}
				if err := r.Check(); err != nil {
					t.Fatal(err)
				}
				r.round()
				if m, ok := r.CurrentRound().MemberIndex(member(3)); !ok || r.CurrentRound().Warming.Has(m) && !test.costs {
					t.Errorf("after %d returns its result does not count", returns)
				}
			}
			if a := (Accuse{Step: 1, Client: member(4), Fault: FaultResult}); errors.Is(r.MayAccuse(member(3), a), ErrNotElected) != test.costs {
				t.Errorf("may accuse: %v", r.MayAccuse(member(3), a))
			}
		})
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
		{"on probation, returned twice without audits", 2, 20, 0, false},
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
