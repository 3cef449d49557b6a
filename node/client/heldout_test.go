package client

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/required"
)

// TestHeldOutClaim checks that members claim the loss that their trainers measure, that all members see the
// median, and that one false claim does not move it.
func TestHeldOutClaim(t *testing.T) {
	for _, lie := range []float64{0.001, 1e9, math.NaN()} {
		t.Run(fmt.Sprint(lie), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(4))
				var members []*member
				for i := range 4 {
					members = append(members, w.launch(i, func(o *options) {
						o.trainer.Duration, o.trainer.HeldOuts, o.trainer.Measures = 300*time.Millisecond, 1, 30*time.Millisecond
						if i == 1 {
							o.trainer.Claims = lie
						}
					}))
				}
				finishEqual(w, members...)
				losses := map[uint32]float64{}
				for _, e := range all[event.Evaluated](members[0]) {
					losses[e.Step] = e.Scores["loss"]
				}
				if len(losses) != 3 {
					t.Errorf("client 0 measured %v, want the models of steps 3, 6 and 9", losses)
				}
				claims := 4
				if math.IsNaN(lie) {
					claims = 3
				}
				for i, m := range members {
					checkHeldOut(t, fmt.Sprint("client ", i), all[event.State](m), losses, claims)
				}
			})
		})
	}
}

// checkHeldOut checks that the claimed loss of each checkpoint is the measured loss.
func checkHeldOut(t *testing.T, observer string, states []event.State, losses map[uint32]float64, claims int) {
	t.Helper()
	seen := map[uint32]bool{}
	for _, s := range states {
		h := s.HeldOut
		if h == nil {
			continue
		}
		seen[h.Step] = true
		if math.Abs(h.Loss.Median-losses[h.Step]) > 0.5/coordinator.LossUnit || h.Loss.Count != claims || len(h.Loss.Far) != claims-3 || h.Digest != s.Digest {
			t.Errorf("%s sees %+v, want %v", observer, h, losses[h.Step])
		}
	}
	if len(seen) != len(losses) {
		t.Errorf("%s saw claims about %v, want %v", observer, seen, losses)
	}
}

// TestHeldOutClaimDelaysNoReport checks that a member does not measure a model if that would take too long,
// and that it gives up a measurement that takes longer than expected, once.
func TestHeldOutClaimDelaysNoReport(t *testing.T) {
	for name, test := range map[string]struct {
		tokens int
		takes  time.Duration
		most   time.Duration // duration of all phases Cooldown together
	}{
		"expected":   {10_000, time.Hour, 2 * time.Second},
		"unexpected": {2, time.Hour, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(2))
				var members []*member
				for i := range 2 {
					members = append(members, w.launch(i, func(o *options) { o.trainer.HeldOuts, o.trainer.Measures = test.tokens, test.takes }))
				}
				finishEqual(w, members...)
				if s := w.host.State(); s.HeldOut().Count != 0 || len(all[event.Evaluated](members[0])) != 0 {
					t.Errorf("claims: %+v", s.HeldOut())
				}
				if took := inCooldown(t, members[0]); took > test.most {
					t.Errorf("the epochs ended after %v in Cooldown, want at most %v", took, test.most)
				}
			})
		})
	}
}

// inCooldown returns the duration of all phases Cooldown that a client saw.
func inCooldown(t *testing.T, m *member) (all time.Duration) {
	t.Helper()
	var since time.Time
	for e, err := range event.Read(m.events) {
		if err != nil {
			t.Fatal(err)
		}
		s, is := e.Body.(event.State)
		switch {
		case !is:
		case s.RunState == coordinator.Cooldown.String() && since.IsZero():
			since = e.Time
		case s.RunState != coordinator.Cooldown.String() && !since.IsZero():
			all, since = all+e.Time.Sub(since), time.Time{}
		}
	}
	return all
}

// TestHeldOutClaimLeavesTimeToReport checks that a member whose model was late at the end of an epoch does
// not measure the model, because its report would be too late.
func TestHeldOutClaimLeavesTimeToReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(2)
		w := newWorld(t, config)
		slow := w.launch(0, func(o *options) {
			late := time.Duration(config.CooldownTime)*time.Millisecond - 1500*time.Millisecond
			o.trainer.OnApply = func(step uint32, _ bool) {
				if o.trainer.Copying = 0; step%config.RoundsPerEpoch == 0 {
					o.trainer.Copying = late
				}
			}
			o.trainer.HeldOuts, o.trainer.Measures = 1, 2*time.Second
		})
		other := w.launch(1, nil)
		finishEqual(w, slow, other)
		for _, s := range all[event.State](other) {
			if s.RunState == coordinator.Warmup.String() && len(s.Members) != 2 {
				t.Errorf("%d members in epoch %d, want 2", len(s.Members), s.Epoch)
			}
		}
		if lost := all[event.Desynchronised](slow); len(lost) > 0 {
			t.Errorf("desynchronised: %+v", lost)
		}
	})
}

// TestHeldOutClaimAfterABusyTrainer checks that a measurement that began late, because the trainer was
// busy, does not stop the measurements of later epochs.
func TestHeldOutClaimAfterABusyTrainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(2)
		w := newWorld(t, config)
		change := func(o *options) {
			o.CheckpointDir = filepath.Join(w.dir, "saved", o.Key.ID().Short())
			o.trainer.HeldOuts, o.trainer.Measures, o.trainer.Heavy = 1, 300*time.Millisecond, required.MaxCopied+1
			limit := time.Duration(config.CooldownTime) * time.Millisecond / 10
			o.trainer.OnApply = func(step uint32, _ bool) {
				if o.trainer.Writing = 0; step == config.RoundsPerEpoch {
					o.trainer.Writing = limit - 100*time.Millisecond
				}
			}
		}
		a, b := w.launch(0, change), w.launch(1, change)
		finishEqual(w, a, b)
		for _, m := range []*member{a, b} {
			losses := all[event.Evaluated](m)
			if len(losses) == 0 || losses[0].Step <= config.RoundsPerEpoch || losses[len(losses)-1].Step != config.TotalSteps {
				t.Errorf("client %s measured %+v, want a later model than the first, and the last one", m.id.Short(), losses)
			}
		}
	})
}

// TestLeavesWhileMeasuring checks that a member that is interrupted during a measurement reports its model
// without a claim, and does not wait for the measurement.
func TestLeavesWhileMeasuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.InitMinClients = 2
		w := newWorld(t, config)
		measures := func(o *options) { o.trainer.HeldOuts, o.trainer.Measures = 1, 2*time.Second }
		leaver, a, b := w.launch(0, measures), w.launch(1, measures), w.launch(2, measures)
		w.reach(config.RoundsPerEpoch+1, coordinator.Cooldown)
		time.Sleep(500 * time.Millisecond)
		if s := w.host.State(); len(s.Reporters(config.RoundsPerEpoch)) > 0 {
			t.Errorf("reports during the measurements: %d, want 0", len(s.Reporters(config.RoundsPerEpoch)))
		}
		leaver.cancel()
		since := time.Now()
		leaver.wait()
		if took := time.Since(since); took > time.Second {
			t.Errorf("left after %v", took)
		}
		s := w.host.State()
		if reported := s.Reporters(config.RoundsPerEpoch); len(reported) != 1 || reported[0].HeldOut != 0 {
			t.Errorf("%d reports, want that of the leaver without a claim", len(reported))
		}
		finishEqual(w, a, b)
	})
}
