package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// withholding is a backend whose client does not report the final model.
type withholding struct{ env.Backend }

func (w withholding) Submit(ctx context.Context, a coordinator.Action) error {
	if report, ok := a.(coordinator.ReportCheckpoint); ok && report.Step == 10 {
		return nil
	}
	return w.Backend.Submit(ctx, a)
}

// TestFinalModelWithoutQuorum ends a run whose final model too few members report. A client that
// has applied all counted results has succeeded, and reports that the final model is missing.
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
		if c := w.host.State().Model.Checkpoint; c.Step != 8 { // the newest model that they reported during rounds
			t.Errorf("the run recorded the model of step %d, want 8", c.Step)
		}
	})
}

// TestOtherFinalModel damages the weights of one client in the last round. The client must not
// present its model as the run's.
func TestOtherFinalModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		a, b := w.launch(0, nil), w.launch(1, nil)
		c := w.launch(2, func(o *options) { o.trainer.Corrupt = func(step uint32) bool { return step == 9 } })
		finishEqual(w, a, b)
		c.wait()
		if !errors.Is(c.err, errDesynchronised) || len(all[event.Finished](c)) != 0 {
			t.Errorf("ended with %v", c.err)
		}
	})
}

// TestClosedRun closes a paused run. This is not a failure, and differs from the regular end.
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

// TestKilledInTheLastRound kills a client in the last round. The other clients stay until it has
// come back and has got the final model from them, and then end.
func TestKilledInTheLastRound(t *testing.T) {
	for name, test := range map[string]struct {
		away  time.Duration // after the end of the run
		comes bool
		most  time.Duration // until all have ended
	}{
		"comes back at once": {time.Second, true, 10 * time.Second},
		"comes back late":    {20 * time.Second, true, 30 * time.Second},
		"stays away":         {0, false, defaultFinalWait + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(3))
				a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
				w.until("the last round", func(s *coordinator.State) bool { return s.Progress.Step == 9 && s.RunState == coordinator.RoundTrain })
				c.crash()
				w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
				finished := time.Now()
				members := []*member{a, b}
				if test.comes {
					time.Sleep(test.away)
					members = append(members, w.launch(2, nil))
				}
				finishEqual(w, members...)
				if took := time.Since(finished); took > test.most {
					t.Errorf("the clients ended %v after the run", took)
				}
				if !test.comes && time.Since(finished) < defaultFinalWait {
					t.Errorf("they stayed for %v only", time.Since(finished))
				}
			})
		})
	}
}

// late is a backend whose client reports the final model two seconds late.
type late struct{ env.Backend }

func (l late) Submit(ctx context.Context, a coordinator.Action) error {
	if report, ok := a.(coordinator.ReportCheckpoint); ok && report.Step == 10 {
		time.Sleep(2 * time.Second)
	}
	return l.Backend.Submit(ctx, a)
}

// TestKilledAfterItsLastReport kills a client that has reported the final model before another
// member has. No member has a reason to stay for it. It comes back before or after the end of the
// run, and still ends with the final model.
func TestKilledAfterItsLastReport(t *testing.T) {
	for name, test := range map[string]struct {
		folder bool
		away   time.Duration
	}{
		"with a folder, after the end":     {true, 5 * time.Second},
		"with a folder, long after it":     {true, 5 * time.Minute},
		"with a folder, before the end":    {true, time.Second},
		"without a folder, before the end": {false, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(3))
				kept := func(o *options) {
					if test.folder {
						o.CheckpointDir = w.dir
					}
				}
				a, b, c := w.launch(0, func(o *options) { o.Backend = late{o.Backend} }), w.launch(1, nil), w.launch(2, kept)
				w.until("the report", func(s *coordinator.State) bool {
					return s.RunState == coordinator.Cooldown && s.Progress.Step == 10 && reported(s, c)
				})
				c.crash()
				time.Sleep(test.away)
				finishEqual(w, a, b, w.launch(2, kept))
			})
		})
	}
}

// reported reports whether a client has reported the model of the epoch.
func reported(s *coordinator.State, m *member) bool {
	return slices.ContainsFunc(s.Reporters(s.Progress.Step-1), func(c coordinator.Client) bool { return c.ID == coordinator.ClientID(m.id) })
}

// TestInterruptAfterTheEnd checks that an interrupted client succeeds if it stayed only for other
// clients.
func TestInterruptAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		a, b := w.launch(0, nil), w.launch(1, nil)
		w.until("the last round", func(s *coordinator.State) bool { return s.Progress.Step == 9 && s.RunState == coordinator.RoundTrain })
		b.crash()
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		time.Sleep(2 * time.Second)
		a.cancel()
		a.wait()
		if finished := all[event.Finished](a); a.err != nil || len(finished) != 1 {
			t.Errorf("ended with %v, finished %+v", a.err, finished)
		}
	})
}

// TestSeveralComeBackForTheFinalModel checks that clients that came back do not stay for each
// other.
func TestSeveralComeBackForTheFinalModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(5))
		var members []*member
		for i := range 5 {
			members = append(members, w.launch(i, nil))
		}
		w.until("the last round", func(s *coordinator.State) bool { return s.Progress.Step == 9 && s.RunState == coordinator.RoundTrain })
		members[3].crash()
		members[4].crash()
		w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
		finished := time.Now()
		time.Sleep(time.Second)
		members[3], members[4] = w.launch(3, nil), w.launch(4, nil)
		finishEqual(w, members...)
		if took := time.Since(finished); took > 10*time.Second {
			t.Errorf("the clients ended %v after the run", took)
		}
	})
}

// distant is a network on which each blob takes seconds.
type distant struct{ env.Network }

func (d distant) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
	return d.Network.Fetch(ctx, hash, size, holders)
}

// TestLateJoinerGetsTheFinalModel checks a client that requests a seat in the last epoch and never
// becomes a member. The members stay until it has the final model, but not if it disconnects.
func TestLateJoinerGetsTheFinalModel(t *testing.T) {
	for _, stays := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, clienttest.Config(3))
			members := []*member{w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)}
			w.until("the last round", func(s *coordinator.State) bool { return s.Progress.Step == 9 && s.RunState == coordinator.RoundTrain })
			late := w.launch(3, func(o *options) { o.Network = distant{o.Network} })
			w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
			if stays {
				members = append(members, late)
			} else {
				late.crash()
			}
			finished := time.Now()
			finishEqual(w, members...)
			if took := time.Since(finished); stays && took < 3*time.Second || !stays && took > 2*time.Second || took > defaultFinalWait {
				t.Errorf("the late one stays: %v; the clients ended %v after the run", stays, took)
			}
		})
	}
}

// TestComesAfterTheEnd checks that a client that never took part in a run ends at once if the run
// is over.
func TestComesAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		a, b := w.launch(0, nil), w.launch(1, nil)
		finishEqual(w, a, b)
		begun := time.Now()
		late := w.launch(2, func(o *options) { o.CheckpointDir = t.TempDir() })
		late.wait()
		if took := time.Since(begun); late.err != nil || took > time.Second || len(all[event.Finished](late)) != 1 {
			t.Errorf("the client ended after %v: %v; events of the end: %v", took, late.err, all[event.Finished](late))
		}
	})
}
