package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
)

// submitter sends this client's actions to the coordinator, as core.Actions permits.
type submitter struct {
	*core.Actions
	tasks   *env.Tasks
	backend env.Backend
	log     *slog.Logger
	id      identity.ID
}

// answered reports whether an action of this kind is in flight, or one with the same subject was
// answered a moment ago. In that case submit does nothing.
func (s *submitter) answered(kind string, about any) bool {
	return s.Answered(s.tasks.Now(), kind, about)
}

// submit sends an action unless the same action is in flight or was answered a moment ago. Callers
// repeat the call until the state shows the effect. accepted runs in the loop.
func (s *submitter) submit(kind string, about any, a coordinator.Action, accepted func()) {
	if !s.Submit(s.tasks.Now(), kind, about, a) {
		return
	}
	s.send(kind, a, func(err error) {
		s.Done(s.tasks.Now(), kind, err)
		if err == nil {
			accepted()
		}
	})
}

// send sends an action. answered runs in the loop.
func (s *submitter) send(kind string, a coordinator.Action, answered func(err error)) {
	s.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := s.tasks.WithTimeout(ctx, core.SubmitTimeout)
		defer cancel()
		err := s.backend.Submit(ctx, a)
		return func() {
			s.logAnswer(kind, err)
			answered(err)
		}
	})
}

// sendLast sends the client's last action, and waits for the answer for at most limit.
func (s *submitter) sendLast(ctx context.Context, a coordinator.Action, limit time.Duration) {
	ctx, cancel := s.tasks.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := s.backend.Submit(ctx, a); err != nil {
		s.log.Debug("withdraw", "err", err)
	}
}

// logAnswer logs the host's answer to an action, unless the host accepted the action.
func (s *submitter) logAnswer(kind string, err error) {
	var code coordinator.Code
	switch {
	case err == nil:
	case errors.Is(err, coordinator.ErrDuplicate):
		s.log.Debug("submitted before", "action", kind)
	case errors.Is(err, coordinator.ErrNotAuthorised):
		s.log.Warn("the run does not admit this key, or has ejected it", "action", kind, "id", s.id)
	case errors.As(err, &code):
		s.log.Debug("refused", "action", kind, "err", err)
	default: // ErrDisconnected: it is unknown whether the action was applied
		s.log.Debug("not submitted", "action", kind, "err", err)
	}
}
