package client

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
	"github.com/psyche-go/psyche/identity"
)

// TestAllDesynchronise has all clients lose their weights in the second epoch, with nothing
// on a disk: each still has the checkpoint that the epoch began with, and the run goes on
// from there.
func TestAllDesynchronise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := fakeConfig(3)
		config.TotalSteps = 12
		w := newWorld(t, config)
		members := []*member{w.launch(0, nil), w.launch(1, nil), w.launch(2, nil)}
		w.until("second round of the second epoch", func(s *coordinator.State) bool {
			return s.Progress.Step == 5 && s.RunState == coordinator.RoundTrain
		})
		before := w.host.State().Model.Checkpoint
		for _, m := range members {
			m.node.post(func() { m.node.desynchronise("all of them") })
		}
		w.until("they have a model again", func(s *coordinator.State) bool {
			return s.Epoch.StartStep > 5 && s.RunState == coordinator.RoundTrain
		})
		if s := w.host.State(); s.Model.Checkpoint != before || len(s.Lapses) != 1 || s.Lapses[0].First != before.Step+1 {
			t.Errorf("the run went on from %+v with lapses %+v, want %+v", s.Model.Checkpoint, s.Lapses, before)
		}
		for _, m := range members {
			if ready := all[event.Ready](m); len(ready) != 3 || ready[2].Source != "held" || ready[2].Digest != hexOf(before.Digest) {
				t.Errorf("ready: %+v", ready)
			}
		}
		finishEqual(w, members...)
	})
}

// TestAttemptsBeginAtOtherPlaces wants one slow place not to be the first of every attempt.
func TestAttemptsBeginAtOtherPlaces(t *testing.T) {
	digest := [32]byte{1}
	state := &coordinator.State{}
	for i, repo := range []string{"a", "b", "other", "c"} {
		u := coordinator.Upload{Reporter: coordinator.ClientID{byte(i)}, Digest: digest, Place: coordinator.Place{Repo: repo}}
		if repo == "other" {
			u.Digest[0]++
		}
		state.Uploads = append(state.Uploads, u)
	}
	n := &Node{state: state}
	for _, want := range []string{"abc", "bca", "cab", "abc"} {
		got := ""
		for _, place := range n.reportedPlaces(digest) {
			got += place.Repo
		}
		if got != want {
			t.Errorf("attempt %d looks at %q, want %q", n.partial.attempts, got, want)
		}
		n.partial.attempts++
	}
	if places := n.reportedPlaces([32]byte{9}); places != nil {
		t.Errorf("of an unknown model: %v", places)
	}
}

// submissions is a backend that keeps what is submitted.
type submissions struct {
	Backend
	actions []coordinator.Action
}

func (s *submissions) Submit(_ context.Context, a coordinator.Action) error {
	s.actions = append(s.actions, a)
	return nil
}

// TestFarewell wants a client that ends to give back its place, be it one that it asked for
// a moment ago or one of the process before it.
func TestFarewell(t *testing.T) {
	me := coordinator.ClientID{7}
	tests := map[string]struct {
		state *coordinator.State
		asked bool
		want  int
	}{
		"nothing seen":                    {nil, false, 0},
		"no place":                        {&coordinator.State{Pending: []coordinator.Client{{ID: coordinator.ClientID{8}}}}, false, 0},
		"asked, and the state is older":   {&coordinator.State{}, true, 1},
		"waits since the process before":  {&coordinator.State{Pending: []coordinator.Client{{ID: me}}}, false, 1},
		"member since the process before": {&coordinator.State{Epoch: coordinator.Epoch{Clients: []coordinator.Client{{ID: me, State: coordinator.Healthy}}}}, false, 1},
		"withdrawn":                       {&coordinator.State{Epoch: coordinator.Epoch{Clients: []coordinator.Client{{ID: me, State: coordinator.Withdrawn}}}}, false, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host := &submissions{}
			n := &Node{Options: Options{Backend: host, WithdrawTimeout: time.Minute}, id: identity.ID(me), state: test.state, log: slog.New(slog.DiscardHandler)}
			n.Runtime, n.seat.asked = goroutines{n}, test.asked
			if test.state != nil {
				n.fit = healthyMembers(test.state)
			}
			n.withdraw(t.Context())
			if len(host.actions) != test.want {
				t.Errorf("submitted %v", host.actions)
			}
		})
	}
}
