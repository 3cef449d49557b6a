package client

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/client/handover"
	"github.com/psyche-go/psyche/client/keep"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// finish ends the client when the run is over, the last checkpoint is saved, and nobody has
// to be waited for.
func (n *Node) finish() {
	p, now := &n.seat.parting, n.tasks.Now()
	if p.since.IsZero() {
		p.since, p.back = now, make(map[coordinator.ClientID]bool)
	}
	if !n.engine.Idle() && p.over(now, n.FinalWait+n.run.handOver()) {
		n.engine.cancelLoad(coordinator.Checkpoint{})
	}
	if !n.closeEpoch() || n.keeper.Busy() || !n.engine.Idle() {
		return
	}
	held := finalOf(n.models.Held, n.run.state)
	if (held == modelOld || held == modelNone) && n.obtainFinal() {
		return
	}
	lingers := p.lingers(held, &n.run, now, n.FinalWait)
	if !p.said {
		p.said = true
		if err := n.report.ended(&n.run, held, n.models.Held, n.keeper); err != nil {
			n.fail(err)
			return
		}
		if lingers {
			away, here := p.awaited(&n.run)
			n.report.log.Info("staying for members that lost the end of the run and may come for the final model; Ctrl-C ends this",
				"members", away+here, "at most", n.FinalWait)
		}
	}
	if !lingers {
		n.end = &ending{}
	}
}

// ended says how the run ended for this client. An error means that it ended badly.
func (r *reporter) ended(v *view, held finalModel, m *handover.Model, keeper *keep.Keeper) error {
	s := v.state
	last := s.Progress.Step - 1 // every round up to it was held
	done := event.Finished{Epoch: s.Progress.Epoch, Step: s.Model.Checkpoint.Step, Closed: v.closedEarly()}
	switch held {
	case modelRecorded:
		done.Step, done.Digest = m.Step, hexOf(m.Digest)
	case modelUnrecorded:
		done.Step, done.Digest, done.Unrecorded = m.Step, hexOf(m.Digest), true
		r.log.Warn("too few members reported the final model for the run to record it; the one here has everything that the run counted", "step", last)
	case modelOld:
		r.log.Warn("this client does not hold the final model", "step", last)
	case modelOther:
		c := s.Model.Checkpoint
		r.emit(event.Desynchronised{Epoch: done.Epoch, Step: m.Step, Reason: "the run recorded another final model"})
		return fmt.Errorf("%w: digest %s of step %d here, %s of step %d recorded", ErrDesynchronised, hexOf(m.Digest), m.Step, hexOf(c.Digest), c.Step)
	}
	if keeper.Err() != nil {
		return errors.Join(errors.New("the final checkpoint was not saved"), keeper.Err())
	}
	message := "the run is finished"
	if done.Closed {
		message = "the run was closed by its authority before its last step"
	}
	if held == modelNone {
		r.log.Warn(message+"; this client took over no model of it", "step", done.Step, "of", s.Config.TotalSteps, "the model", keeper.WhereLies(s))
	} else {
		r.log.Info(message, "step", done.Step, "of", s.Config.TotalSteps, "digest", done.Digest)
	}
	r.emit(done)
	return nil
}

// finalModel is what the model held here is to a run that is over.
type finalModel uint8

const (
	modelRecorded   finalModel = iota // the one that the run recorded
	modelUnrecorded                   // of the last round, which the run recorded no model of
	modelOld                          // one before the last round
	modelOther                        // not the run's
	modelNone                         // there is none here
)

// finalOf compares the model held here with a finished run. Every counted result is in a
// model of the last round; that too few others were left to report theirs does not make it
// a wrong one.
func finalOf(held *handover.Model, s *coordinator.State) finalModel {
	c, last := s.Model.Checkpoint, s.Progress.Step-1
	switch {
	case held == nil:
		return modelNone
	case !c.FromPeers() && held.Origin == c, c.FromPeers() && held.Digest == c.Digest:
		return modelRecorded
	case c.FromPeers() && c.Step == held.Step, held.Step > last:
		return modelOther
	case held.Step < last:
		return modelOld
	}
	return modelUnrecorded
}
