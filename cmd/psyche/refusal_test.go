package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
)

// TestRefusalsSayWhatToDo puts refusals into words that name a remedy, and no Go type.
func TestRefusalsSayWhatToDo(t *testing.T) {
	run, err := config.LoadState(sampleState)
	if err != nil {
		t.Fatal(err)
	}
	host, other := coordinator.ClientID{1}, coordinator.ClientID{2}
	state, err := run.CoordinatorState(host)
	if err != nil {
		t.Fatal(err)
	}
	in := func(runState coordinator.RunState, change func(*coordinator.State)) *coordinator.State {
		s := state.Clone()
		s.RunState = runState
		if change != nil {
			change(&s)
		}
		return &s
	}
	waiting, paused := in(coordinator.WaitingForMembers, nil), in(coordinator.Paused, nil)
	pausing := in(coordinator.RoundTrain, func(s *coordinator.State) { s.PendingPause = true })
	far := in(coordinator.Paused, func(s *coordinator.State) { s.Progress.Step = state.Config.TotalSteps + 1 })
	finished := in(coordinator.Finished, nil)
	closed := in(coordinator.Finished, func(s *coordinator.State) { s.Closed = true })
	update := coordinator.UpdateConfig{Config: state.Config, Model: state.Model}
	for _, test := range []struct {
		state  *coordinator.State
		from   coordinator.ClientID
		action coordinator.Action
		code   coordinator.Code
	}{
		{waiting, host, update, coordinator.ErrWrongState},
		{pausing, host, coordinator.Close{}, coordinator.ErrWrongState},
		{far, host, update, coordinator.ErrInvalidConfig},
		{waiting, host, coordinator.Eject{Client: other}, coordinator.ErrNotMember},
		{waiting, other, coordinator.SetPaused{Paused: true}, coordinator.ErrNotAuthorised},
		{waiting, other, coordinator.Authorize{}, coordinator.ErrNotAuthorised},
		{waiting, other, coordinator.SetDelegates{}, coordinator.ErrNotAuthorised},
		{pausing, host, coordinator.SetPaused{Paused: true}, coordinator.ErrDuplicate},
		{paused, host, coordinator.SetPaused{Paused: true}, coordinator.ErrDuplicate},
		{waiting, host, coordinator.SetPaused{}, coordinator.ErrDuplicate},
		{waiting, host, coordinator.Authorize{Allowed: true}, coordinator.ErrPermissionless},
		{waiting, host, coordinator.Authorize{Allowed: true}, coordinator.ErrFull},
		{finished, host, update, coordinator.ErrHalted},
		{closed, host, update, coordinator.ErrHalted},
	} {
		err := asked{"r", test.state, test.from, test.action}.explain(fmt.Errorf("submit %T: %w", test.action, test.code))
		name := fmt.Sprintf("%T in %v: %v", test.action, test.state.RunState, test.code)
		if test.state.Closed {
			name += ", closed"
		}
		golden.Message(t, strings.TrimPrefix(name, "coordinator."), err)
		if !errors.Is(err, test.code) || !isRefusal(err) {
			t.Errorf("%q is no longer a refusal", err)
		}
	}
}
