package cheat

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
)

// recorder is a host that records the submitted actions, and refuses some accusations.
type recorder struct {
	env.Backend
	actions []coordinator.Action
	refuses bool
}

func (r *recorder) Submit(_ context.Context, a coordinator.Action) error {
	r.actions = append(r.actions, a)
	if _, ok := a.(coordinator.Accuse); ok && r.refuses {
		return errors.New("refused")
	}
	return nil
}

func TestSlandering(t *testing.T) {
	victim, other := identity.ID{1}, coordinator.ClientID{2}
	host := &recorder{}
	slanderer := Slandering(host, victim, coordinator.FaultSilent, coordinator.FaultResult)
	for _, a := range []coordinator.Action{
		coordinator.WitnessRound{Step: 1}, coordinator.WitnessRound{Step: 2}, coordinator.WitnessRound{Step: 2}, coordinator.WitnessRound{Step: 3},
		coordinator.Vote{Step: 1, Client: coordinator.ClientID(victim)}, coordinator.Vote{Step: 1, Client: other},
	} {
		if err := slanderer.Submit(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	var accused []coordinator.Action
	for _, a := range host.actions {
		switch a := a.(type) {
		case coordinator.Accuse:
			accused = append(accused, a)
		case coordinator.Vote:
			if a.Guilty != (a.Client == coordinator.ClientID(victim)) {
				t.Errorf("votes %+v", a)
			}
		}
	}
	want := []coordinator.Action{
		coordinator.Accuse{Step: 1, Client: coordinator.ClientID(victim), Fault: coordinator.FaultSilent},
		coordinator.Accuse{Step: 2, Client: coordinator.ClientID(victim), Fault: coordinator.FaultResult},
	}
	if !slices.Equal(accused, want) {
		t.Errorf("accused %+v, want %+v", accused, want)
	}
	host.refuses = true
	if err := slanderer.Submit(t.Context(), coordinator.WitnessRound{Step: 4}); err != nil {
		t.Errorf("a refused accusation fails the member: %v", err)
	}
}
