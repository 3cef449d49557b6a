package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
)

const (
	submitTimeout    = 10 * time.Second // for one attempt to submit an action
	effectTimeout    = 3 * time.Second  // until an accepted action shows in the state
	refusalPause     = time.Second      // after an action was refused
	notAdmittedPause = 10 * time.Second // after the run did not admit this key
)

// submitter sends this client's actions to the coordinator. At most one action of each kind is in
// flight.
type submitter struct {
	tasks   *env.Tasks
	backend env.Backend
	log     *slog.Logger
	id      identity.ID
	kinds   map[string]*pendingAction
}

// pendingAction is the newest action of a kind.
type pendingAction struct {
	about     any // subject of the action; an action with another subject may be sent at once
	flying    bool
	notBefore time.Time
}

// flying reports whether an action of this kind is in flight.
func (s *submitter) flying(kind string) bool {
	known := s.kinds[kind]
	return known != nil && known.flying
}

// answered reports whether an action of this kind is in flight, or one with the same subject was
// answered a moment ago. In that case submit does nothing.
func (s *submitter) answered(kind string, about any) bool {
	known := s.kinds[kind]
	return known != nil && (known.flying || known.about == about && s.tasks.Now().Before(known.notBefore))
}

// submit sends an action unless the same action is in flight or was answered a moment ago. Callers
// repeat the call until the state shows the effect. accepted runs in the loop.
func (s *submitter) submit(kind string, about any, a coordinator.Action, accepted func()) {
	if s.answered(kind, about) {
		return
	}
	this := s.kinds[kind]
	if this == nil {
		this = &pendingAction{}
		s.kinds[kind] = this
	}
	this.about, this.flying = about, true
	s.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := s.tasks.WithTimeout(ctx, submitTimeout)
		defer cancel()
		err := s.backend.Submit(ctx, a)
		return func() {
			this.flying = false
			this.notBefore = s.tasks.Now().Add(s.pauseAfter(kind, err))
			if err == nil {
				accepted()
			}
		}
	})
}

// withdraw reports to the coordinator that the client leaves, if it has a seat, or has asked for one.
// It is the client's last action.
func (s *submitter) withdraw(ctx context.Context, v *view, asked bool, limit time.Duration) {
	if !asked && !v.hasSeat() {
		return
	}
	ctx, cancel := s.tasks.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := s.backend.Submit(ctx, coordinator.Withdraw{Client: v.myself()}); err != nil {
		s.log.Debug("withdraw", "err", err)
	}
}

// pauseAfter returns how long to wait after an answer before sending the same action again.
func (s *submitter) pauseAfter(kind string, err error) time.Duration {
	var code coordinator.Code
	switch {
	case err == nil:
		return effectTimeout
	case errors.Is(err, coordinator.ErrDuplicate):
		s.log.Debug("submitted before", "action", kind)
		return effectTimeout
	case errors.Is(err, coordinator.ErrNotAuthorised):
		s.log.Warn("the run does not admit this key, or has ejected it", "action", kind, "id", s.id)
		return notAdmittedPause
	case errors.As(err, &code):
		s.log.Debug("refused", "action", kind, "err", err)
		return refusalPause
	}
	// ErrDisconnected: it is unknown whether the action was applied
	s.log.Debug("not submitted", "action", kind, "err", err)
	return heartbeat
}
