package client

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/clienttest"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// auditedConfig is a run of two epochs of so many rounds in which a third of the members verifies.
func auditedConfig(clients uint16, rounds uint32) coordinator.Config {
	c := clienttest.Config(clients)
	c.VerificationPercent, c.RoundsPerEpoch, c.TotalSteps, c.EjectionEpochs = 34, rounds, 2*rounds, 1
	return c
}

// audited makes the trainer one that can be audited, and changes it; change may be nil.
func audited(change func(a *clienttest.Audited)) func(o *options) {
	return func(o *options) {
		o.trainer.Duration = time.Second
		o.audited = clienttest.Audit(o.trainer)
		if change != nil {
			change(o.audited)
		}
	}
}

// TestHonestMembersPassTheirAudits lets a run audit honest members, with lags of one and of two rounds:
// every verifier gives a verdict, nobody is accused, and nobody is found late.
func TestHonestMembersPassTheirAudits(t *testing.T) {
	for name, lag := range map[string]uint32{"lag 1": 1, "lag 2": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, auditedConfig(6, 8))
				var members []*member
				for i := range 6 {
					members = append(members, w.launch(i, audited(func(a *clienttest.Audited) { a.Lag = lag })))
				}
				idle := map[string]bool{}
				w.until("the end", func(s *coordinator.State) bool {
					for _, c := range s.Epoch.Clients {
						if c.Lateness != coordinator.OnTime || c.State != coordinator.Healthy {
							idle[c.ID.String()] = true
						}
					}
					return s.RunState == coordinator.Finished
				})
				finishEqual(w, members...)
				verdicts := 0
				for _, m := range members {
					for _, v := range all[event.Verdict](m) {
						verdicts++
						if v.Outcome != "passed" {
							t.Errorf("%+v", v)
						}
					}
					if accused := all[event.Accused](m); len(accused) > 0 {
						t.Errorf("%+v", accused)
					}
				}
				// Those of an epoch's last round may come when it is over.
				if most := 2 * 2 * (8 - 1); verdicts < most-2*2 || verdicts > most || len(idle) > 0 {
					t.Errorf("%d verdicts of %d; found late: %v", verdicts, most, idle)
				}
			})
		})
	}
}

// TestWhoComesBackIsNotAccused: a new process begins from zeros, which the run knows. So does who starts
// again without it, after it has left for a moment.
func TestWhoComesBackIsNotAccused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(6, 20))
		var members []*member
		for i := range 6 {
			members = append(members, w.launch(i, audited(nil)))
		}
		for _, at := range []uint32{5, 12} {
			w.until("some rounds", func(s *coordinator.State) bool { return s.Progress.Step == at && s.RunState == coordinator.RoundTrain })
			members[5].crash()
			members[5] = w.launch(5, audited(nil))
		}
		finishEqual(w, members...)
		if e := w.host.State().Authority.Ejections; len(e) > 0 {
			t.Errorf("ejected: %v", e)
		}
		for _, m := range members {
			for _, v := range all[event.Verdict](m) {
				if v.Outcome != "passed" && v.Outcome != "unopened" && v.Outcome != "nothing to audit" && v.Outcome != "unclear" {
					t.Errorf("%+v", v)
				}
			}
		}
		if len(all[event.Verdict](members[5])) == 0 || len(all[event.Rejoined](members[5])) == 0 {
			t.Error("it did not come back to its duties")
		}
	})
}

// TestMayBegin: what a result may go on from.
func TestMayBegin(t *testing.T) {
	made := &opener{heads: []audits.Head{{Step: 3}}}
	for name, c := range map[string]struct {
		opener *opener
		fresh  uint32
		since  uint32
		want   bool
	}{
		"a new member":                   {nil, 5, 5, true},
		"took its seat back":             {nil, 5, 7, true},
		"a new process of a member":      {nil, 5, 1, false},
		"that has made nothing":          {&opener{}, 5, 1, false},
		"goes on from the newest result": {made, 1, 0, true},
	} {
		if d := (&duties{opener: c.opener, fresh: c.fresh}); d.mayBegin(c.since) != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// TestVerifiersOfAnotherTypeAreBelieved: what a verifier seals that computes in another type is not what
// the trainer's own opening implies, until the trainer has computed in that type too.
func TestVerifiersOfAnotherTypeAreBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(6, 12))
		var members []*member
		var own atomic.Int32 // results of their own that trainers have examined
		for i := range 6 {
			members = append(members, w.launch(i, audited(func(a *clienttest.Audited) {
				a.Examining = func(x env.Examination) {
					if x.Trainer == a.ID {
						own.Add(1)
					}
				}
				if a.Types = []audit.Precision{audit.F32, audit.BF16}; i < 2 {
					slices.Reverse(a.Types)
				}
			})))
		}
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		finishEqual(w, members...)
		checkNobodyAccused(t, w, members)
		if own.Load() == 0 {
			t.Error("no trainer has computed in another type")
		}
	})
}

// TestWhoIsNotHeardIsNotEjected: a verifier whose reports do not reach some trainers is accused of having
// revealed nothing, and acquitted, since it opens for the jury. Nobody loses a seat.
func TestWhoIsNotHeardIsNotEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, auditedConfig(7, 30))
		members := []*member{w.launch(0, audited(nil)), w.launch(1, audited(nil))}
		deaf := make(map[identity.ID]bool) // so many that some are audited by it, whatever is drawn
		for _, i := range []int{0, 1, 3, 4} {
			deaf[clienttest.Key(i).ID()] = true
		}
		members = append(members, w.launch(2, func(o *options) {
			audited(nil)(o)
			o.Network = &answering{Network: o.Network, protocol: audits.ReportProtocol, answer: func(from identity.ID, report []byte) ([]byte, error) {
				if deaf[from] {
					return nil, errors.New("not heard")
				}
				return report, nil
			}}
		}))
		for i := range 4 {
			members = append(members, w.launch(3+i, audited(nil)))
		}
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		finishEqual(w, members...)
		if e := w.host.State().Authority.Ejections; len(e) > 0 {
			t.Errorf("ejected: %v", e)
		}
		accused := 0
		for _, m := range members {
			for _, a := range all[event.Accused](m) {
				if accused++; a.Fault != coordinator.FaultUnrevealed.String() || a.Client != members[2].id.String() {
					t.Errorf("%+v", a)
				}
			}
		}
		if accused == 0 {
			t.Error("nobody is accused")
		}
		checkVotes(t, members)
	})
}

// checkNobodyAccused wants no member to have accused another one, and nobody ejected.
func checkNobodyAccused(t *testing.T, w *world, members []*member) {
	t.Helper()
	for _, m := range members {
		if accused := all[event.Accused](m); len(accused) > 0 {
			t.Errorf("%s accuses: %+v", m.id.Short(), accused)
		}
	}
	if e := w.host.State().Authority.Ejections; len(e) > 0 {
		t.Errorf("ejected: %v", e)
	}
}
