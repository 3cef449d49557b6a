package client

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/record/event"
)

// finish ends the client when the run is over, the last checkpoint is saved, and no other client
// needs it.
func (n *Node) finish() {
	p, now := &n.member.afterRun, n.tasks.Now()
	if p.since.IsZero() {
		p.since, p.back = now, make(map[coordinator.ClientID]bool)
		if held := finalOf(n.models.Held, &n.run); held == modelNone && p.obtains(&n.run, now, n.FinalWait) && !p.late && n.models.holds.Newest(n.run.state).Step == 0 {
			n.report.log.Info("this run is over; asking its members for the final model; Ctrl-C ends the wait", "limit", n.FinalWait)
		}
	}
	if p.late {
		n.end = &ending{n.report.ended(&n.run, modelNone, nil, n.saver)}
		return
	}
	if !n.engine.Idle() && p.over(now, n.FinalWait+n.run.modelSyncTime()) {
		n.engine.CancelLoad(coordinator.Checkpoint{})
	}
	if !n.closeEpoch() || n.saver.Busy() || !n.engine.Idle() {
		if steps, _ := n.saver.Unwritten(); len(steps) > 0 && !p.slow && p.over(now, slowShutdown) {
			p.slow = true
			n.report.log.Warn("the run is finished, but its last checkpoint is not on the disk yet; if the disk does not respond, Ctrl-C ends this client without the checkpoint",
				"dir", n.CheckpointDir, "unsaved_steps", steps)
		}
		return
	}
	held := finalOf(n.models.Held, &n.run)
	if (held == modelOld || held == modelNone) && p.obtains(&n.run, now, n.FinalWait) {
		n.obtainModel()
		return
	}
	if !p.said && n.member.awaitRoom(n.saver, n.report.log, n.CheckpointDir, now, n.FinalWait) {
		return
	}
	lingers := p.lingers(held, &n.run, now, n.FinalWait)
	if !p.said {
		p.said = true
		if err := n.report.ended(&n.run, held, n.models.Held, n.saver); err != nil {
			n.fail(err)
			return
		}
		if lingers && n.run.reported(n.run.state.Model.Checkpoint) {
			away, here := p.awaited(&n.run)
			n.report.log.Info("waiting for members that missed the end of the run and may need the final model; Ctrl-C ends the wait",
				"members", away+here, "waiting_clients", p.joiners(&n.run), "limit", n.FinalWait)
		}
	}
	if !lingers {
		n.end = &ending{}
	}
}

// ended logs how the run ended for this client. It returns an error if the run ended badly.
func (r *reporter) ended(v *view, held finalModel, m *modelsync.Model, saver *keep.Saver) error {
	s := v.state
	last := s.Progress.Step - 1 // every round up to it has attested results
	done := event.Finished{Epoch: s.Progress.Epoch, Step: s.Model.Checkpoint.Step, Closed: v.closedEarly()}
	switch held {
	case modelRecorded:
		done.Step, done.Digest = m.Step, hexOf(m.Digest)
	case modelUnrecorded:
		done.Step, done.Digest, done.Unrecorded = m.Step, hexOf(m.Digest), true
		r.log.Warn("too few members reported the final model for the run to record it; this client's model has all counted results", "step", last)
	case modelOld:
		r.log.Warn("this client does not hold the final model", "step", last)
	case modelOther:
		c := s.Model.Checkpoint
		r.emit(event.Desynchronised{Epoch: done.Epoch, Step: m.Step, Reason: "the run recorded a different final model"})
		return fmt.Errorf("%w: digest %s of step %d, but the run recorded %s of step %d", errDesynchronised, hexOf(m.Digest), m.Step, hexOf(c.Digest), c.Step)
	}
	if saver.Err() != nil {
		return errors.Join(errors.New("the final checkpoint was not saved"), saver.Err())
	}
	message := "the run is finished"
	if done.Closed {
		message = "the run was closed by its authority before its last step"
	}
	if held == modelNone {
		r.log.Warn("this run is over, and this client got no model of it", "closed", done.Closed, "step", done.Step, "of", s.Config.TotalSteps, "model", saver.Locations(s))
	} else {
		r.log.Info(message, "step", done.Step, "of", s.Config.TotalSteps, "digest", done.Digest)
	}
	r.emit(done)
	return nil
}
