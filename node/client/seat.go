package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/models"
	"github.com/psyche-go/psyche/node/modelsync"
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

// holdings are the models that this client can load by itself.
type holdings struct {
	models *modelsync.Models
	copies *models.Copies
	saver  *keep.Saver
}

// checkpoint reports whether this client can load the run's checkpoint by itself: its parts are
// still in memory, independent of the trainer's weights, or on its disk.
func (h *holdings) checkpoint(s *coordinator.State) bool {
	c := s.Model.Checkpoint
	return c.FromPeers() && (h.models.Shared(c.Digest) != nil || h.copies.Holds(c.Digest)) || h.saver.Holds(c)
}

// newest returns the newest model that the run recorded and this client holds, or zero.
func (h *holdings) newest(s *coordinator.State) coordinator.Recorded {
	c := s.Model.Checkpoint
	switch {
	case !c.FromPeers():
		return coordinator.Recorded{}
	case h.checkpoint(s):
		return coordinator.Recorded{Step: c.Step, Digest: c.Digest}
	}
	saved, _ := h.saver.Newest(s)
	for _, r := range slices.Backward(s.Earlier) {
		if r.Step > saved.Step && (h.copies.Holds(r.Digest) || h.models.Shared(r.Digest) != nil) {
			return r
		}
	}
	return saved
}

// unreported reports whether this client has a model that it has not reported.
func (h *holdings) unreported(s *coordinator.State, id coordinator.ClientID) bool {
	me, ok := s.Member(id)
	if !ok {
		return false
	}
	if last := s.Progress.Step - 1; s.RunState == coordinator.Cooldown {
		return h.models.Held != nil && h.models.Held.Step == last && me.Report.Step != last
	}
	_, more := h.copies.Unreported(s, me)
	return more
}

// A restarted client may have only an older model of the run, from which the run could continue.
// Such a client waits up to holderTimeout for a holder of the newest model, and logs that it waits
// every holderReminder.
const (
	holderTimeout  = 5 * time.Minute
	holderReminder = time.Minute
)

// missingModel describes a client's wait for the run's newest recorded model, which no connected
// client has.
type missingModel struct {
	of     coordinator.Checkpoint
	since  time.Time // zero: the model is available
	said   time.Time
	older  uint32 // step of the newest checkpoint in the folder
	usable bool   // the run has recorded that older checkpoint
}

func (m *missingModel) text(left time.Duration) string {
	message := fmt.Sprintf("the newest model that the run recorded is of step %d; no connected member has it, and --checkpoint-dir has only step %d; this client waits for a member with the newer model, ", m.of.Step, m.older)
	if m.usable {
		return message + fmt.Sprintf("at most %s more (not at all with --accept-loss); then it joins, and if the run's own wait for the model ends too, the run continues without steps %d to %d", left.Round(time.Second), m.older+1, m.of.Step)
	}
	return message + "because the run would otherwise restart from its initial model; if no member has the newer model, start this client with --accept-loss"
}
