package client

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// beginning is the start of a training.
type beginning struct {
	step  uint32
	batch assign.BatchID
	ahead bool // before its round began

	weights [clienttest.Width]uint64 // weights of the model
}

// beginnings records when a client starts its trainings.
type beginnings struct {
	mu    sync.Mutex
	all   []beginning
	after map[uint32][clienttest.Width]uint64 // weights after each applied step
}

// note makes the trainer of a client record its trainings, in a run whose results are applied two
// rounds later.
func (b *beginnings) note(w *world, o *options) {
	o.trainer.Lag = 2
	o.trainer.OnTrain = func(step uint32, batch assign.BatchID) {
		s := w.host.State()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.all = append(b.all, beginning{step, batch, s.Progress.Step < step, o.trainer.Weights()})
	}
	b.after = make(map[uint32][clienttest.Width]uint64)
	o.trainer.OnApply = func(step uint32, _ bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.after[step] = o.trainer.Weights()
	}
}

// of returns the trainings of a step.
func (b *beginnings) of(step uint32) (found []beginning) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		if one.step == step {
			found = append(found, one)
		}
	}
	return found
}

// TestNextRoundIsTrainedAhead checks three clients in a run whose results are applied two rounds
// later. The fastest client trains the next batch before its round begins, and all of its results
// count.
func TestNextRoundIsTrainedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(3))
		noted := make([]beginnings, 3)
		var members []*member
		for i := range noted {
			members = append(members, w.launch(i, func(o *options) { noted[i].note(w, o) }))
		}
		finishEqual(w, members...)
		checkWholeRunAhead(t, members)
		for step := uint32(1); step <= 9; step++ {
			first := step%3 == 1                   // of its epoch
			replica := step - min(2, (step-1)%3+1) // newest step whose results are in the weights of the round
			for i := range noted {
				begun := noted[i].of(step)
				if replica > 0 && begun[0].weights != noted[0].after[replica] {
					t.Errorf("client %d did not train step %d on the weights after step %d", i, step, replica)
				}
				if len(begun) != 1 || first && begun[0].ahead {
					t.Errorf("client %d began step %d: %+v", i, step, begun)
				}
			}
			if !first && !noted[0].of(step)[0].ahead {
				t.Errorf("the quickest did not begin step %d ahead", step)
			}
		}
	})
}

// checkWholeRunAhead checks that each result counted once.
func checkWholeRunAhead(t *testing.T, members []*member) {
	t.Helper()
	for i, m := range members {
		if lost := all[event.Desynchronised](m); len(lost) != 0 {
			t.Errorf("client %d: %+v", i, lost)
		}
		applied := all[event.Applied](m)
		for _, a := range applied {
			if a.Counted != len(members) || !a.OwnCounted {
				t.Errorf("client %d: %+v", i, a)
			}
		}
		if m.trainer.Momentum() != 9 || m.trainer.Unapplied() != 0 || len(applied) != 9 {
			t.Errorf("client %d: %d results in the momentum, %d unapplied, %d rounds applied", i, m.trainer.Momentum(), m.trainer.Unapplied(), len(applied))
		}
	}
}

// TestMemberLeavesBeforeTheRoundThatIsTrainedAhead checks that a wrong prediction is discarded. The
// client trains the actual batch of the round, and the discarded training leaves nothing in the
// momentum.
func TestMemberLeavesBeforeTheRoundThatIsTrainedAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(3)
		config.InitMinClients = 2
		w := newWorld(t, config)
		var quick, slow beginnings
		a := w.launch(0, func(o *options) { quick.note(w, o) })
		b := w.launch(1, func(o *options) { slow.note(w, o) })
		c := w.launch(2, func(o *options) { o.trainer.Lag = 2; o.trainer.Duration = 5 * time.Second })
		w.until("the second round is trained ahead", func(s *coordinator.State) bool {
			return s.Progress.Step == 1 && len(quick.of(2)) == 1 && len(slow.of(2)) == 1
		})
		time.Sleep(2 * time.Second) // both wait for the round
		c.cancel()
		c.wait()
		finishEqual(w, a, b)
		for i, noted := range []*beginnings{&quick, &slow} {
			begun := noted.of(2)
			if len(begun) != 2 || !begun[0].ahead || begun[0].batch == begun[1].batch || begun[1].batch.Len() != 6 {
				t.Errorf("client %d began step 2: %+v", i, begun)
			}
		}
		trained := make(map[uint64]bool)
		for i, m := range []*member{a, b} {
			for _, e := range all[event.Trained](m) {
				for at := e.Batch[0]; at < e.Batch[1]; at++ {
					if trained[at] {
						t.Errorf("sequence %d was trained twice", at)
					}
					trained[at] = true
				}
			}
			var own uint64
			for _, e := range all[event.Applied](m) {
				if e.OwnCounted {
					own++
				}
			}
			if m.trainer.Momentum() != own || own != 9 || m.trainer.Unapplied() != 0 {
				t.Errorf("client %d: %d results in the momentum, %d counted, %d unapplied", i, m.trainer.Momentum(), own, m.trainer.Unapplied())
			}
		}
	})
}

// TestFailedTrainingAhead checks that a training ahead that fails at once is not repeated until the
// round begins.
func TestFailedTrainingAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		var noted beginnings
		a := w.launch(0, func(o *options) {
			noted.note(w, o)
			o.trainer.Duration = time.Millisecond
			o.trainer.Silent = func(step uint32) bool { return step == 2 }
		})
		b := w.launch(1, func(o *options) { o.trainer.Lag = 2 })
		finishEqual(w, a, b)
		if begun := noted.of(2); len(begun) != 2 || !begun[0].ahead || begun[1].ahead {
			t.Errorf("the failing step was begun %d times, want once ahead and once in its round", len(begun))
		}
	})
}

// TestTrainingAheadIsGivenUp checks that a training ahead ends at once if its round does not come
// for this client, and that it leaves nothing in the momentum.
func TestTrainingAheadIsGivenUp(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, w *world, quick *member){
		"desynchronised": func(_ *testing.T, _ *world, quick *member) {
			quick.node.tasks.Run(func() func() { return func() { quick.node.desynchronise("the test says so") } })
		},
		"paused": func(t *testing.T, w *world, _ *member) {
			if err := w.host.Apply(coordinator.SetPaused{Paused: true}); err != nil {
				t.Error(err)
			}
			w.until("pause", func(s *coordinator.State) bool { return s.RunState == coordinator.Paused })
			if err := w.host.Apply(coordinator.SetPaused{Paused: false}); err != nil {
				t.Error(err)
			}
		},
		"interrupted": func(t *testing.T, w *world, quick *member) {
			quick.cancel()
			begun := time.Now()
			quick.wait()
			if took := time.Since(begun); took > time.Second {
				t.Errorf("the client ended %v after the interrupt", took)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(3)
				config.InitMinClients = 2
				w := newWorld(t, config)
				var noted beginnings
				quick := w.launch(0, func(o *options) { noted.note(w, o) })
				slow := func(o *options) { o.trainer.Lag = 2; o.trainer.Duration = 2 * time.Second }
				b, c := w.launch(1, slow), w.launch(2, slow)
				w.until("step 5 is trained ahead", func(s *coordinator.State) bool { return s.Progress.Step == 4 && len(noted.of(5)) == 1 })
				time.Sleep(time.Second) // waits for its round
				between(t, w, quick)
				finishEqual(w, b, c)
				unapplied := 1 // of step 4, which an interrupted client does not apply
				if name != "interrupted" {
					finishEqual(w, quick)
					unapplied = 0
				}
				for _, e := range all[event.Trained](quick) {
					if e.Step == 5 && name != "paused" && len(noted.of(5)) == 1 {
						t.Error("step 5 was trained to its end")
					}
				}
				if begun := noted.of(5); !begun[0].ahead || quick.trainer.Unapplied() != unapplied {
					t.Errorf("step 5 began %+v, %d results are unapplied", begun, quick.trainer.Unapplied())
				}
			})
		})
	}
}
