package client

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
)

// submissions is a backend that keeps what is submitted.
type submissions struct {
	env.Backend
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
			n := &Node{Options: Options{Backend: host, WithdrawTimeout: time.Minute}, run: view{me: identity.ID(me), state: test.state}, report: &reporter{log: slog.New(slog.DiscardHandler)}}
			n.tasks, n.seat.asked = &env.Tasks{Runtime: newGoroutines(nil)}, test.asked
			if test.state != nil {
				n.run.fit, n.run.slow = healthyMembers(test.state)
			}
			n.withdraw(t.Context())
			if len(host.actions) != test.want {
				t.Errorf("submitted %v", host.actions)
			}
		})
	}
}
