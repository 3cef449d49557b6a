package core

import (
	"errors"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Pauses between two attempts to submit the same action.
const (
	SubmitTimeout    = 10 * time.Second       // for one attempt to submit an action
	effectTimeout    = 3 * time.Second        // until an accepted action shows in the state
	refusalPause     = time.Second            // after an action was refused
	notAdmittedPause = 10 * time.Second       // after the run did not admit this key
	unansweredPause  = 200 * time.Millisecond // after the host gave no answer
)

// Kinds of the actions that a Member submits.
const (
	joinKind         = "join"
	readyKind        = "ready"
	returnKind       = "return"
	withdrawKind     = "withdraw"
	checkpointKind   = "checkpoint"
	intermediateKind = "intermediate checkpoint"
	witnessKind      = "witness"
	healthKind       = "health check"
	offerKind        = "offer"
)

// Actions tracks this member's actions at the coordinator. At most one action of each kind is in
// flight. In the zero value none was submitted.
type Actions struct{ kinds map[string]*pending }

// pending is the newest action of a kind.
type pending struct {
	about     any // subject of the action; an action with another subject may be sent at once
	action    coordinator.Action
	flying    bool
	notBefore time.Time
}

// isFlying reports whether an action of this kind is in flight.
func (a *Actions) isFlying(kind string) bool {
	known := a.kinds[kind]
	return known != nil && known.flying
}

// Answered reports whether an action of this kind is in flight, or one with the same subject was
// answered a moment ago. In that case Submit does nothing.
func (a *Actions) Answered(now time.Time, kind string, about any) bool {
	known := a.kinds[kind]
	return known != nil && (known.flying || known.about == about && now.Before(known.notBefore))
}

// Submit records that an action is sent, unless the same action is in flight or was answered a moment
// ago. Callers repeat the call until the state shows the effect.
func (a *Actions) Submit(now time.Time, kind string, about any, action coordinator.Action) (sends bool) {
	if a.Answered(now, kind, about) {
		return false
	}
	if a.kinds == nil {
		a.kinds = make(map[string]*pending)
	}
	a.kinds[kind] = &pending{about: about, action: action, flying: true}
	return true
}

// Done records the host's answer to the action of a kind that is in flight, and returns the action.
func (a *Actions) Done(now time.Time, kind string, err error) coordinator.Action {
	known := a.kinds[kind]
	known.flying, known.notBefore = false, now.Add(pauseAfter(err))
	return known.action
}

// pauseAfter returns how long to wait after an answer before sending the same action again.
func pauseAfter(err error) time.Duration {
	var code coordinator.Code
	switch {
	case err == nil, errors.Is(err, coordinator.ErrDuplicate):
		return effectTimeout
	case errors.Is(err, coordinator.ErrNotAuthorised):
		return notAdmittedPause
	case errors.As(err, &code):
		return refusalPause
	}
	return unansweredPause // it is unknown whether the action was applied
}
