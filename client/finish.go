package client

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/client/handover"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/event"
)

// finish ends the client when the run is over and the last checkpoint is saved.
func (n *Node) finish() {
	if !n.closeEpoch() || n.keeper.Busy() || !n.engine.idle() {
		return
	}
	last := n.run.state.Progress.Step - 1 // every round up to it was held
	done := event.Finished{Epoch: n.run.state.Progress.Epoch, Step: n.run.state.Model.Checkpoint.Step, Closed: n.run.state.Closed && last < n.run.state.Config.TotalSteps}
	held := finalOf(n.models.Held, n.run.state)
	switch held {
	case modelRecorded:
		done.Step, done.Digest = n.models.Held.Step, hexOf(n.models.Held.Digest)
	case modelUnrecorded:
		done.Step, done.Digest, done.Unrecorded = n.models.Held.Step, hexOf(n.models.Held.Digest), true
		n.report.log.Warn("too few members reported the final model for the run to record it; the one here has everything that the run counted", "step", last)
	case modelOld:
		n.report.log.Warn("this client does not hold the final model", "step", last)
	case modelOther:
		c := n.run.state.Model.Checkpoint
		n.report.emit(event.Desynchronised{Epoch: done.Epoch, Step: n.models.Held.Step, Reason: "the run recorded another final model"})
		n.fail(fmt.Errorf("%w: digest %s of step %d here, %s of step %d recorded", ErrDesynchronised, hexOf(n.models.Held.Digest), n.models.Held.Step, hexOf(c.Digest), c.Step))
		return
	}
	if n.keeper.Err() != nil {
		n.fail(errors.Join(errors.New("the final checkpoint was not saved"), n.keeper.Err()))
		return
	}
	message := "the run is finished"
	if done.Closed {
		message = "the run was closed by its authority before its last step"
	}
	if held == modelNone {
		n.report.log.Warn(message+"; this client took over no model of it", "step", done.Step, "of", n.run.state.Config.TotalSteps, "the model", n.keeper.WhereLies(n.run.state))
	} else {
		n.report.log.Info(message, "step", done.Step, "of", n.run.state.Config.TotalSteps, "digest", done.Digest)
	}
	n.report.emit(done)
	n.end = &ending{}
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
