package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
		want   string
	}{
		{waiting, host, update, coordinator.ErrWrongState, "update-config: the run is WaitingForMembers; pause it first: psyche run set-paused --run-id r"},
		{pausing, host, coordinator.Close{}, coordinator.ErrWrongState, "close: the run is RoundTrain and pauses at the end of its epoch: try again"},
		{far, host, update, coordinator.ErrInvalidConfig, "update-config: total_steps must be more than the steps that the run has done"},
		{waiting, host, coordinator.Eject{Client: other}, coordinator.ErrNotMember, "psyche run status --run-id r"},
		{waiting, other, coordinator.SetPaused{Paused: true}, coordinator.ErrNotAuthorised, "main authority may"},
		{waiting, other, coordinator.Authorize{}, coordinator.ErrNotAuthorised, "join authority may"},
		{waiting, other, coordinator.SetDelegates{}, coordinator.ErrNotAuthorised, "it can with: psyche run authorize"},
		{pausing, host, coordinator.SetPaused{Paused: true}, coordinator.ErrDuplicate, "already pauses"},
		{paused, host, coordinator.SetPaused{Paused: true}, coordinator.ErrDuplicate, "is already paused"},
		{waiting, host, coordinator.SetPaused{}, coordinator.ErrDuplicate, "is not paused"},
		{waiting, host, coordinator.Authorize{Allowed: true}, coordinator.ErrPermissionless, "--permissioned"},
		{waiting, host, coordinator.Authorize{Allowed: true}, coordinator.ErrFull, "--revoke"},
		{finished, host, update, coordinator.ErrHalted, "psyche run close --run-id r"},
		{closed, host, update, coordinator.ErrHalted, "psyche run export --run-id r"},
	} {
		err := asked{"r", test.state, test.from, test.action}.explain(fmt.Errorf("submit %T: %w", test.action, test.code))
		if text := err.Error(); !strings.Contains(text, test.want) || strings.Contains(text, "coordinator.") {
			t.Errorf("%v of %T in %v: %q, want %q", test.code, test.action, test.state.RunState, text, test.want)
		}
		if !errors.Is(err, test.code) || !isRefusal(err) {
			t.Errorf("%q is no longer a refusal", err)
		}
	}
}
