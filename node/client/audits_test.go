package client

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// auditedConfig returns the configuration of a run of one epoch in which a third of the members
// audits.
func auditedConfig(clients uint16, rounds uint32) coordinator.Config {
	c := clienttest.Config(clients)
	c.VerificationPercent, c.RoundsPerEpoch, c.TotalSteps, c.EjectionEpochs = 34, rounds, rounds, 1
	return c
}

// audited gives a client a trainer that can be audited, and changes it; change may be nil.
func audited(change func(a *clienttest.Audited)) func(o *options) {
	return func(o *options) {
		o.trainer.Duration = time.Second
		o.audited = clienttest.Audit(o.trainer)
		if change != nil {
			change(o.audited)
		}
	}
}

// checkNobodyAccused checks that no member accused another member, and that no client was ejected.
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

// found counts the outcomes of audits.
func found(members []*member) map[string]int {
	outcomes := make(map[string]int)
	for _, m := range members {
		for _, a := range all[event.Audit](m) {
			outcomes[a.Outcome]++
		}
	}
	return outcomes
}

// watch returns the members that were ever found late.
func watch(w *world) map[coordinator.ClientID]bool {
	late := map[coordinator.ClientID]bool{}
	w.until("the end", func(s *coordinator.State) bool {
		noteLate(s, late)
		return s.RunState == coordinator.Finished
	})
	return late
}

// noteLate records the members that are late or gone.
func noteLate(s *coordinator.State, late map[coordinator.ClientID]bool) {
	for _, c := range s.Epoch.Clients {
		if c.Lateness != coordinator.OnTime || c.State != coordinator.Healthy {
			late[c.ID] = true
		}
	}
}

// TestHonestMembersPassTheirAudits checks that, with lags of one and two rounds and over two
// epochs, members find time to audit and all audits pass. No member is accused or found late.
// Members that audit whenever they are idle audit more.
func TestHonestMembersPassTheirAudits(t *testing.T) {
	for name, c := range map[string]struct {
		lag   uint32
		idle  bool
		least int
	}{"lag 1": {1, false, 16}, "lag 2": {2, false, 16}, "lag 1, idle": {1, true, 60}, "lag 2, idle": {2, true, 24}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := auditedConfig(6, 12)
				config.TotalSteps = 24
				w := newWorld(t, config)
				var members []*member
				for i := range 6 {
					members = append(members, w.launch(i, func(o *options) {
						audited(func(a *clienttest.Audited) { a.Lag, a.RecomputeTime = c.lag, 300*time.Millisecond })(o)
						o.AuditIdle = c.idle
					}))
				}
				late := watch(w)
				finishEqual(w, members...)
				checkNobodyAccused(t, w, members)
				outcomes := found(members)
				if t.Logf("%v", outcomes); outcomes["passed"] < c.least || len(outcomes) > 1 || len(late) > 0 {
					t.Errorf("audits %v; found late: %v", outcomes, late)
				}
			})
		})
	}
}

// TestSlowAuditorsGoOn checks that a member that needs eight times as long for a recomputation as for a training,
// and has time for it in a third of the rounds, finishes its audits if interrupted recomputations continue.
// Otherwise it finishes none. In both cases no member is accused or late.
func TestSlowAuditorsGoOn(t *testing.T) {
	for _, restarts := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, auditedConfig(6, 90))
			var members []*member
			for i := range 6 {
				members = append(members, w.launch(i, audited(func(a *clienttest.Audited) {
					if a.Restarts, a.RecomputeTime = restarts, 300*time.Millisecond; i == 0 {
						a.RecomputeTime = 8 * time.Second
					}
				})))
			}
			late := watch(w)
			finishEqual(w, members...)
			checkNobodyAccused(t, w, members)
			outcomes := found(members[:1])
			if t.Logf("restarts %v: %v", restarts, outcomes); (outcomes["passed"] == 0) != restarts || len(late) > 0 {
				t.Errorf("audits of the slow member: %v; found late: %v", outcomes, late)
			}
		})
	}
}

// strain contains the parameters of underStrain.
type strain struct {
	percent uint8 // share of members that audit
	lag     uint32
	plain   bool // without audits, because the trainers do not support them
}

// lossy drops a share of messages, always the same ones.
func lossy(share uint32) func(parts ...any) bool {
	var count atomic.Uint32
	return func(parts ...any) bool {
		h := fnv.New32a()
		_, _ = fmt.Fprint(h, count.Add(1), parts)
		return h.Sum32()%100 < share
	}
}

// starved is a data provider that gives a member its own batches only. Later requests fail.
type starved struct {
	clienttest.Data
	given map[assign.BatchID]bool
}

func (s starved) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	if s.given[id] || len(s.given) > 400 {
		return data.Batch{}, clienttest.ErrFake
	}
	s.given[id] = true
	return s.Data.Batch(ctx, id)
}

// underStrain runs eight honest members in rounds of less than a tenth of a second. One recomputes
// slowly, one gets only its own tokens, and one is killed and restarted repeatedly. A tenth of the
// gossip and half of the openings are lost. It returns the number of lost batches, and the outcomes
// of audits.
func underStrain(t *testing.T, s strain) (lost int, outcomes map[string]int) {
	const count, rounds = 8, 240
	config := auditedConfig(count, rounds)
	config.VerificationPercent, config.RoundsPerEpoch = s.percent, rounds/2
	config.RoundWitnessTime = 20
	w := newWorldOf(t, config, 5*time.Millisecond)
	drop, fail := lossy(10), lossy(50)
	w.hub.DropGossip = func(from, to identity.ID, message []byte) bool { return drop(from, to) }
	launch := func(i int) *member {
		return w.launch(i, func(o *options) {
			o.trainer.Lag = s.lag
			if s.percent > 0 && !s.plain {
				lag := s.lag
				audited(func(a *clienttest.Audited) {
					a.Lag = lag
					if i == 1 {
						a.RecomputeTime = 2 * time.Second
					}
				})(o)
			}
			opens(o, func(from identity.ID, opening []byte) ([]byte, error) {
				if fail(from, opening) {
					return nil, clienttest.ErrFake
				}
				return opening, nil
			})
			if o.trainer.Duration = 50 * time.Millisecond; i == 2 {
				o.Data = starved{given: make(map[assign.BatchID]bool)}
			}
			o.RepublishInterval = 30 * time.Millisecond
			if i == count-1 {
				o.CheckpointDir = w.dir + "/killed"
			}
		})
	}
	var members []*member
	for i := range count {
		members = append(members, launch(i))
	}
	for _, at := range []uint32{30, 70, 150} {
		w.until("some rounds", func(s *coordinator.State) bool { return s.Progress.Step >= at && s.RunState == coordinator.RoundTrain })
		members[count-1].crash()
		time.Sleep(300 * time.Millisecond)
		members[count-1] = launch(count - 1)
	}
	began := time.Now()
	w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
	t.Logf("last rounds in %v", time.Since(began))
	finishEqual(w, members...)
	checkNobodyAccused(t, w, members)
	for _, m := range members[:count-1] {
		if desynchronised := all[event.Desynchronised](m); len(desynchronised) > 0 {
			t.Errorf("%s: got %+v; want len(desynchronised) == 0", m.id.Short(), desynchronised)
		}
	}
	if applied := len(all[event.Applied](members[0])); applied != rounds {
		t.Errorf("%d of %d rounds are applied", applied, rounds)
	}
	for _, a := range all[event.Applied](members[0]) {
		lost += len(a.Lost)
	}
	return lost, found(members)
}

// TestHonestMembersUnderStrain checks that audits do not cause more losses, and that no member is
// accused, however short rounds are and whatever goes wrong.
func TestHonestMembersUnderStrain(t *testing.T) {
	for _, lag := range []uint32{1, 2} {
		t.Run(fmt.Sprintf("lag %d", lag), func(t *testing.T) {
			if testing.Short() {
				t.Skip("-short: takes minutes with the race detector")
			}
			t.Parallel()
			lost := make(map[uint8]int)
			for _, percent := range []uint8{0, 34} {
				synctest.Test(t, func(t *testing.T) {
					var outcomes map[string]int
					lost[percent], outcomes = underStrain(t, strain{percent, lag, false})
					t.Logf("%d percent audit: %d batches lost, %v", percent, lost[percent], outcomes)
					if outcomes["faulty"]+outcomes["silent"] > 0 || percent > 0 && outcomes["passed"] < 100 {
						t.Errorf("audits %v", outcomes)
					}
				})
			}
			if lost[34] > lost[0]+10 {
				t.Errorf("%d batches are lost with audits, %d without", lost[34], lost[0])
			}
		})
	}
}
