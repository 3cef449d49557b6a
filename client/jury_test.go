package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/clienttest"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
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
