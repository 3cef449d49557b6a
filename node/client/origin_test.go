package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// TestReplacedModelIsNotTrained checks a main authority that replaces the members' model with its
// own. If the operator names no main authority, the host is the main authority.
func TestReplacedModelIsNotTrained(t *testing.T) {
	for name, follows := range map[string]bool{"": false, "--follow-updates": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(2))
				var loaded atomic.Int32
				launch := func(i int) *member {
					return w.launch(i, func(o *options) {
						o.FollowUpdates = follows
						o.Initial = func(_ context.Context, c coordinator.Checkpoint) (checkpoint.Snapshot, error) {
							if c.Repo == "attacker/backdoored" {
								loaded.Add(1)
							}
							return clienttest.Model(), nil
						}
					})
				}
				members := []*member{launch(0), launch(1)}
				w.until("second round", func(s *coordinator.State) bool { return s.Progress.Step == 2 })
				replaceModel(w, "attacker/backdoored")
				for _, m := range members {
					m.wait()
					if follows && m.err != nil || !follows && (!errors.Is(m.err, ErrReplaced) || !strings.Contains(m.err.Error(), "attacker/backdoored")) {
						t.Errorf("ended with %v", m.err)
					}
				}
				if (loaded.Load() > 0) != follows {
					t.Errorf("the model that replaced the members' model was loaded %d times", loaded.Load())
				}
			})
		})
	}
}

// replaceModel pauses the run, names a different model, and resumes the run.
func replaceModel(w *world, repo string) {
	w.t.Helper()
	apply := func(a coordinator.Action) {
		if err := w.host.Apply(a); err != nil {
			w.t.Fatal(err)
		}
	}
	apply(coordinator.SetPaused{Paused: true})
	w.until("pause", func(s *coordinator.State) bool { return s.RunState == coordinator.Paused })
	state := w.host.State()
	update := coordinator.UpdateConfig{Config: state.Config, Model: state.Model}
	update.Model.Checkpoint = coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: repo, Revision: strings.Repeat("01", 20)}
	apply(update)
	apply(coordinator.SetPaused{})
}

// TestOrigin checks that replaced models are distinguished from checkpoints of one and the same
// model.
func TestOrigin(t *testing.T) {
	first, err := coordinator.New(clienttest.RunID, coordinator.ClientID(clienttest.Key(1).ID()), clienttest.Config(1), coordinator.Model{
		MaxSeqLen: 2, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: "a/b", Revision: "c"},
	})
	if err != nil || first.OriginStep != 1 {
		t.Fatal(first.OriginStep, err)
	}
	with := func(since uint32, change func(*coordinator.Checkpoint)) *coordinator.State {
		s := first
		s.OriginStep = since
		if change != nil {
			change(&s.Model.Checkpoint)
		}
		return &s
	}
	trained := func(c *coordinator.Checkpoint) {
		c.Origin, c.Kind, c.Step, c.Digest = c.Kind, coordinator.CheckpointP2P, 7, [32]byte{1}
	}
	none := func(c *coordinator.Checkpoint) { *c = coordinator.Checkpoint{} }
	other := func(c *coordinator.Checkpoint) { c.Repo = "x/y" }
	genesis := follow.SignGenesis(clienttest.Key(1), [32]byte{}, first.AppendTo(nil))
	for name, test := range map[string]struct {
		genesis []byte
		states  []*coordinator.State
		want    bool // the last state replaces the model
	}{
		"a checkpoint":               {nil, []*coordinator.State{&first, with(1, trained)}, false},
		"back to the beginning":      {nil, []*coordinator.State{&first, with(1, trained), &first}, false},
		"a model that follows later": {nil, []*coordinator.State{with(1, none), &first}, false},
		"another model":              {nil, []*coordinator.State{&first, with(1, trained), with(9, other)}, true},
		"before anything is trained": {nil, []*coordinator.State{&first, with(1, other)}, true},
		"there and back unseen":      {nil, []*coordinator.State{with(1, trained), with(9, nil)}, true},
		"a later start":              {genesis, []*coordinator.State{with(1, trained)}, false},
		"replaced before the start":  {genesis, []*coordinator.State{with(9, other)}, true},
		"the first model is unknown": {nil, []*coordinator.State{with(9, other)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var o origin
			for i, s := range test.states {
				err := o.watch(backend.Update{State: s, Genesis: test.genesis})
				if want := test.want && i == len(test.states)-1; errors.Is(err, ErrReplaced) != want || (err != nil) != want {
					t.Errorf("state %d: %v", i, err)
				}
			}
		})
	}
}
