package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// TestFourthReturn checks a member that loses its seat four times in the first term of an epoch as
// long as the run. It trains again from the second term on.
func TestFourthReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.RoundsPerEpoch, config.TotalSteps = 60, 60
		w := newWorld(t, config)
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		id := coordinator.ClientID(c.id)
		trains := func(s *coordinator.State) bool {
			m, ok := s.Member(id)
			return ok && m.State == coordinator.Healthy && s.RunState == coordinator.RoundTrain
		}
		for returns := range uint8(coordinator.MaxReturns + 1) {
			w.until("it trains", func(s *coordinator.State) bool {
				m, ok := s.Member(id)
				return ok && trains(s) && m.Returns == returns
			})
			if err := c.backend.Submit(context.Background(), coordinator.Withdraw{Client: id}); err != nil {
				t.Fatal(err)
			}
		}
		w.until("it has left", func(s *coordinator.State) bool { _, ok := s.Member(id); return !ok })
		left := w.host.State()
		w.until("it is back", trains)
		back := w.host.State()
		if term := back.CurrentRound().Height / coordinator.TermRounds; term != 1 || back.Progress.Epoch != 0 {
			t.Errorf("back in term %d of epoch %d", term, back.Progress.Epoch)
		}
		t.Logf("left for the fourth time in step %d, back in step %d", left.Progress.Step, back.Progress.Step)
		time.Sleep(time.Second)
		finishEqual(w, a, b, c)
		own := 0
		for _, applied := range all[event.Applied](c) {
			if applied.OwnCounted && applied.Step > back.Progress.Step {
				own++
			}
		}
		if own < 10 {
			t.Errorf("%d of its results counted after its fourth return", own)
		}
	})
}
