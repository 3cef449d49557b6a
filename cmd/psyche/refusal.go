package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
)

// refusal is an error for an action that a run's rules refuse, with advice.
type refusal struct {
	text  string
	cause error
}

func (r refusal) Error() string { return r.text }
func (r refusal) Unwrap() error { return r.cause }

// asked is an action that a user requested.
type asked struct {
	runID  string
	state  *coordinator.State // of the run, shortly before
	from   coordinator.ClientID
	action coordinator.Action
}

// explain adds advice to a refusal by the run's rules. It returns other errors unchanged.
func (a asked) explain(err error) error {
	code, ok := errors.AsType[coordinator.Code](err)
	if !ok || a.state == nil {
		return err
	}
	return refusal{follow.ActionName(a.action) + ": " + a.reason(code), err}
}

func (a asked) reason(code coordinator.Code) string {
	switch code {
	case coordinator.ErrHalted:
		if a.state.Closed {
			return "the run is closed for good; its log stays: psyche run export --run-id " + a.runID
		}
		return "the run is finished and can only be closed: psyche run close --run-id " + a.runID
	case coordinator.ErrWrongState:
		return a.notPaused()
	case coordinator.ErrNotAuthorised:
		return a.notAuthorised()
	case coordinator.ErrNotMember:
		if eject, ok := a.action.(coordinator.Eject); ok {
			return fmt.Sprintf("%s is neither a member of this epoch nor waiting for the next epoch; list the members with: psyche run status --run-id %s",
				identity.ID(eject.Client), a.runID)
		}
	case coordinator.ErrDuplicate:
		return a.alreadySo()
	case coordinator.ErrPermissionless:
		return "the run admits every key, so there is nothing to authorize; use --permissioned when you create a run to restrict it"
	case coordinator.ErrFull:
		return a.full()
	case coordinator.ErrWrongNumber:
		return "the authorization of the key changed in the meantime: try again"
	case coordinator.ErrStaleNonce:
		return "another command signed by the same key came first: try again"
	case coordinator.ErrInvalidAction:
		if _, ok := a.action.(coordinator.SetDelegates); ok {
			return "a key is repeated, or is the signing key: name every delegate once"
		}
	case coordinator.ErrInvalidConfig:
		return a.invalidConfig()
	}
	return code.Error()
}

// notPaused explains how to bring the run to a state that permits the action.
func (a asked) notPaused() string {
	if a.state.PendingPause {
		return fmt.Sprintf("the run is %s and pauses at the end of its epoch: try again when psyche run status --run-id %s shows Paused", a.state.RunState, a.runID)
	}
	return fmt.Sprintf("the run is %s; pause it first: psyche run set-paused --run-id %s", a.state.RunState, a.runID)
}

// notAuthorised names the key that is permitted to act.
func (a asked) notAuthorised() string {
	role, holder := "main authority", a.state.Authority.Main
	switch a.action.(type) {
	case coordinator.SetDelegates:
		return fmt.Sprintf("the join authority has not authorized the signing key %s; it can with: psyche run authorize %s --run-id %s",
			identity.ID(a.from), identity.ID(a.from), a.runID)
	case coordinator.Authorize:
		role, holder = "join authority", a.state.Authority.Join
	}
	return fmt.Sprintf("the key %s may not do this; only the run's %s may, %s: give its key file with --keypair", identity.ID(a.from), role, identity.ID(holder))
}

// alreadySo explains that the requested state already exists.
func (a asked) alreadySo() string {
	isPaused := a.state.RunState == coordinator.Paused
	switch action := a.action.(type) {
	case coordinator.SetPaused:
		switch {
		case action.Paused && isPaused:
			return "the run is already paused"
		case action.Paused:
			return "the run already pauses at the end of its epoch"
		case isPaused:
			return "the run is already set to resume"
		default:
			return "the run is not paused"
		}
	case coordinator.Authorize:
		if action.Allowed {
			return identity.ID(action.Grantee).String() + " may already join"
		}
		return identity.ID(action.Grantee).String() + " is not authorized"
	case coordinator.SetDelegates:
		return "the key already has these delegates"
	default:
		return coordinator.ErrDuplicate.Error()
	}
}

func (a asked) full() string {
	if _, ok := a.action.(coordinator.SetDelegates); ok {
		return fmt.Sprintf("a key has at most %d delegates", coordinator.MaxDelegates)
	}
	return fmt.Sprintf("a run has at most %d authorizations: revoke an authorization first, with psyche run authorize KEY --revoke --run-id %s", coordinator.MaxAuthorizations, a.runID)
}

// invalidConfig finds the invalid configuration key, because the server's answer is only a code.
func (a asked) invalidConfig() string {
	trial := a.state.Clone()
	if wrong, ok := errors.AsType[*coordinator.ConfigError](trial.Apply(a.from, math.MaxUint64, a.action)); ok {
		return wrong.Error()
	}
	return coordinator.ErrInvalidConfig.Error()
}
