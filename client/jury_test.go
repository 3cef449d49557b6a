package client

import (
	"testing"
	"testing/synctest"
	"time"

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
