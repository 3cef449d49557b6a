package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/client/clienttest"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// withholding is a backend whose client does not report the final model.
type withholding struct{ env.Backend }

func (w withholding) Submit(ctx context.Context, a coordinator.Action) error {
	if report, ok := a.(coordinator.ReportCheckpoint); ok && report.Step == 10 {
		return nil
	}
	return w.Backend.Submit(ctx, a)
}

// TestFinalModelWithoutQuorum ends a run whose final model too few members report: who
// has applied everything that counted has succeeded, and says what is missing.
func TestFinalModelWithoutQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		quiet := func(o *options) { o.Backend = withholding{o.Backend} }
		members := []*member{w.launch(0, nil), w.launch(1, quiet), w.launch(2, quiet)}
		digests := map[string]bool{}
		for _, m := range members {
			m.wait()
			if m.err != nil {
				t.Errorf("client %s: %v", m.id.Short(), m.err)
			}
			finished := all[event.Finished](m)
			if len(finished) != 1 || finished[0].Step != 9 || !finished[0].Unrecorded || finished[0].Closed {
				t.Fatalf("client %s finished with %+v", m.id.Short(), finished)
			}
			digests[finished[0].Digest] = true
		}
		if len(digests) != 1 {
			t.Errorf("the final models differ: %v", digests)
		}
		if c := w.host.State().Model.Checkpoint; c.Step != 6 {
			t.Errorf("the run recorded the model of step %d, want 6", c.Step)
		}
	})
}

// TestOtherFinalModel damages the weights of one client in the last round: it does not
// pass its model off as the run's.
func TestOtherFinalModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		c := w.launch(2, func(o *options) { o.trainer.Corrupt = func(step uint32) bool { return step == 9 } })
		finishEqual(w, a, b)
		c.wait()
		if !errors.Is(c.err, ErrDesynchronised) || len(all[event.Finished](c)) != 0 {
			t.Errorf("ended with %v", c.err)
		}
	})
}

// TestClosedRun closes a paused run: that is no failure, and not the same as its end.
func TestClosedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		members := []*member{w.launch(0, nil), w.launch(1, nil)}
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		if err := w.host.Apply(coordinator.SetPaused{Paused: true}); err != nil {
			t.Fatal(err)
		}
		w.until("pause", func(s *coordinator.State) bool { return s.RunState == coordinator.Paused })
		step := w.host.State().Model.Checkpoint.Step
		if err := w.host.Apply(coordinator.Close{}); err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			m.wait()
			finished := all[event.Finished](m)
			if m.err != nil || len(finished) != 1 {
				t.Fatalf("ended with %v, %+v", m.err, finished)
			}
			if f := finished[0]; !f.Closed || f.Unrecorded || f.Step != step || f.Digest == "" {
				t.Errorf("finished with %+v", f)
			}
		}
	})
}
