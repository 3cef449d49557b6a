package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/record/event"
)

// dawdler is a backend whose client never reports ready, and never reports a model.
type dawdler struct{ *memory.Client }

func (d dawdler) Submit(ctx context.Context, a coordinator.Action) error {
	switch a.(type) {
	case coordinator.Ready, coordinator.ReportCheckpoint:
		return errors.New("not now")
	}
	return d.Client.Submit(ctx, a)
}

// TestOneMemberDoesNotSetThePace checks a member, one of five, that delivers valid results just
// before the end of each round's time. In each epoch two rounds wait for it, for as long as
// witnesses wait.
func TestOneMemberDoesNotSetThePace(t *testing.T) {
	took := map[bool]time.Duration{}
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			config := clienttest.Config(5)
			config.WarmupTime, config.CooldownTime = 1000, 1000 // it also delays Warmup and Cooldown
			w := newWorld(t, config)
			var members []*member
			begun := time.Now()
			for i := range 5 {
				members = append(members, w.launch(i, func(o *options) {
					o.trainer.Duration = time.Second
					if slow && i == 4 {
						o.trainer.Duration = 19 * time.Second
						o.Backend = dawdler{o.Backend.(*memory.Client)}
					}
				}))
			}
			w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
			took[slow] = time.Since(begun)
			for _, m := range members {
				m.cancel()
				<-m.done
			}
		})
	}
	t.Logf("9 rounds in 3 epochs took %v, with one that dawdles %v", took[false], took[true])
	if most := took[false] + 3*(2*(core.LeastWitnessWait+time.Second)+2*time.Second); took[true] > most {
		t.Errorf("with a slow member 9 rounds took %v, want at most %v", took[true], most)
	}
}

// TestMemberJustInTime checks a member whose results arrive just before the end of the witnesses'
// wait. It makes every round longer, and no health check names it.
func TestMemberJustInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const needs = time.Second + core.LeastWitnessWait - 100*time.Millisecond
		config := clienttest.Config(5)
		config.WarmupTime, config.CooldownTime = 1000, 1000
		w := newWorld(t, config)
		var members []*member
		for i := range 5 {
			members = append(members, w.launch(i, func(o *options) {
				o.trainer.Duration = time.Second
				if i == 4 {
					o.trainer.Duration = needs
				}
			}))
		}
		for step := range uint32(9) {
			w.until("a round", func(s *coordinator.State) bool {
				return s.Progress.Step > step && s.RunState == coordinator.RoundTrain
			})
			begun := time.Now()
			w.until("the round's end", func(s *coordinator.State) bool {
				return s.Progress.Step > step+1 || s.RunState != coordinator.RoundTrain
			})
			if took := time.Since(begun); took < needs-50*time.Millisecond {
				t.Errorf("round %d took %v, want %v", step+1, took, needs)
			}
		}
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		for _, m := range members {
			if checks := all[event.HealthCheckSent](m); len(checks) != 0 {
				t.Errorf("a member reported late members: %+v", checks)
			}
			m.wait()
		}
	})
}
