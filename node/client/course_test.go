package client

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
)

// TestEjected ejects a client. The other clients continue without it. It keeps asking for a seat,
// and is a member again in the first epoch that allows it.
func TestEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		a, b, c := w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		if err := w.host.Apply(coordinator.Eject{Client: coordinator.ClientID(c.id)}); err != nil {
			t.Fatal(err)
		}
		w.until("return of the ejected", func(s *coordinator.State) bool {
			client, isMember := s.Member(coordinator.ClientID(c.id))
			healthy := isMember && client.State == coordinator.Healthy
			if healthy && s.Progress.Epoch == 1 {
				t.Error("the ejected client is a member of the next epoch")
			}
			return healthy && s.Progress.Epoch == 2
		})
		finishEqual(w, a, b, c)
	})
}

// pausedWorld returns a run of two members that was paused in its second round.
func pausedWorld(t *testing.T) (w *world, a, b *member) {
	t.Helper()
	w = newWorld(t, clienttest.Config(2))
	a, b = w.launch(0, nil), w.launch(1, nil)
	w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
	if err := w.host.Apply(coordinator.SetPaused{Paused: true}); err != nil {
		t.Fatal(err)
	}
	w.until("pause", func(s *coordinator.State) bool { return s.RunState == coordinator.Paused })
	return w, a, b
}

// TestReconfigure gives a paused run a new definition. Every member then builds a new trainer from
// the model that it holds.
func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := pausedWorld(t)
		state := w.host.State()
		update := coordinator.UpdateConfig{Config: state.Config, Model: state.Model}
		update.Model.Definition = []byte("another learning rate")
		for _, action := range []coordinator.Action{update, coordinator.SetPaused{}} {
			if err := w.host.Apply(action); err != nil {
				t.Fatal(err)
			}
		}
		finishEqual(w, a, b)
		for _, m := range []*member{a, b} {
			if m.trainer.Loads() != 2 {
				t.Errorf("the model was loaded %d times", m.trainer.Loads())
			}
			if got := string(m.node.engine.built.Definition); got != "another learning rate" {
				t.Errorf("the trainer is built from %q", got)
			}
			if lost := all[event.Desynchronised](m); len(lost) != 0 {
				t.Errorf("got %+v; want len(lost) == 0", lost)
			}
		}
	})
}

// TestPause pauses and resumes a run, which continues from the same model.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, a, b := pausedWorld(t)
		time.Sleep(time.Minute)
		if err := w.host.Apply(coordinator.SetPaused{Paused: false}); err != nil {
			t.Fatal(err)
		}
		finishEqual(w, a, b)
		for _, m := range []*member{a, b} {
			if m.trainer.Loads() != 1 {
				t.Errorf("the model was loaded %d times", m.trainer.Loads())
			}
			if steps := all[event.Applied](m); len(steps) != 9 {
				t.Errorf("applied %d rounds", len(steps))
			}
		}
	})
}

// TestLateJoiner checks that a client that joins a running run gets the model from the members.
func TestLateJoiner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		a, b := w.launch(0, nil), w.launch(1, nil)
		w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
		c := w.launch(2, nil)
		finishEqual(w, a, b, c)
		joined := all[event.Applied](c)
		if len(joined) == 0 || joined[0].Step != 4 || !slices.ContainsFunc(joined, func(e event.Applied) bool { return e.OwnCounted }) {
			t.Errorf("the late joiner applied %+v", joined)
		}
		if len(all[event.Rejoined](c)) != 0 {
			t.Error("a newcomer was reported as returned")
		}
	})
}
