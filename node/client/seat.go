package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
)

// seat manages this client's seat in the run.
type seat struct {
	greeted  bool                   // the client has seen a state
	origin   origin                 // the model that the run trains
	told     coordinator.Checkpoint // the run's checkpoint at the newest accepted Join
	acked    time.Time              // when the newest accepted Join was sent, until a state shows it
	asked    bool                   // this process has joined
	again    bool                   // the next entry is a return: the model was lost, or the process restarted
	check    *runCheck              // newest check; nil: none yet
	waiting  waiting                // reason for waiting that was logged last
	afterRun afterRun               // after the end of the run
	leaving  core.Leave             // graceful leave
	missing  missingModel           // the run's newest model, while it is not available
	rejoin   rejoin                 // return to a running epoch
	reveals  reveals                // for the draws of the run
}

// runCheck is the result of CheckRun for a definition of the run.
type runCheck struct {
	task       core.ID
	definition []byte
	fromPeers  bool // the model was to come from members; checked again if the run falls back to its initial one
	passed     bool
}

// checked reports whether a check has shown that this client can do its part in the run's current
// definition, and starts the check if necessary. The client is checked before it joins, because the
// other members would wait for a client that cannot do its part.
func (s *seat) checked(run env.Definition, e *engine, check func(context.Context, env.Definition) error, fail func(error)) bool {
	if check == nil {
		return true
	}
	fromPeers := run.Checkpoint.FromPeers()
	if c := s.check; c != nil && bytes.Equal(c.definition, run.Definition) && (c.fromPeers == fromPeers || c.passed && fromPeers) {
		return c.passed
	}
	if s.check != nil {
		e.Drop(s.check.task)
	}
	c := &runCheck{definition: run.Definition, fromPeers: fromPeers}
	s.check = c
	c.task = spawn(e.tasks, &e.Jobs, core.Check{}, func(ctx context.Context) failure {
		return failure{check(ctx, run), ctx.Err() != nil}
	}, func(f failure) {
		switch {
		case f.cancelled:
		case f.err != nil:
			fail(fmt.Errorf("check before joining the run: %w", f.err))
		default:
			c.passed = true
		}
	}, nil)
	return false
}

// reportWaiting logs what this client waits for, if that has changed.
func (s *seat) reportWaiting(v *view, e *submitter, log *slog.Logger) {
	if !e.flying("join") { // the log line about joining comes first
		s.waiting = s.waiting.said(v.waitsFor(), e.tasks.Now(), log)
	}
}

// awaitRoom reports whether the client waits for room on the disk, because its last checkpoint could
// not be saved. Without the wait, the user could not keep the final model by removing other files.
func (s *seat) awaitRoom(saver *keep.Saver, log *slog.Logger, dir string, now time.Time, limit time.Duration) bool {
	p := &s.afterRun
	if s.leaving.Begun() || p.over(now, limit) || !saver.Hasten() {
		return false
	}
	if !p.full {
		p.full = true
		log.Warn("the run is finished, but its last checkpoint is not saved; remove other files from that disk now, or the client ends without the checkpoint",
			"dir", dir, "limit", limit, "err", saver.Err())
	}
	return true
}
