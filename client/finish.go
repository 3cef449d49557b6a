package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/event"
)

// finish ends the client when the run is over and the last checkpoint is saved.
func (n *Node) finish() {
	if !n.closeEpoch() || n.keeper.Busy() || !n.engine.idle() {
		return
	}
	last := n.run.state.Progress.Step - 1 // every round up to it was held
	done := event.Finished{Epoch: n.run.state.Progress.Epoch, Step: n.run.state.Model.Checkpoint.Step, Closed: n.run.state.Closed && last < n.run.state.Config.TotalSteps}
	held := n.finalModel(last)
	switch held {
	case modelRecorded:
		done.Step, done.Digest = n.models.Held.Step, hexOf(n.models.Held.Digest)
	case modelUnrecorded:
		done.Step, done.Digest, done.Unrecorded = n.models.Held.Step, hexOf(n.models.Held.Digest), true
		n.log.Warn("too few members reported the final model for the run to record it; the one here has everything that the run counted", "step", last)
	case modelOld:
		n.log.Warn("this client does not hold the final model", "step", last)
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
		n.log.Warn(message+"; this client took over no model of it", "step", done.Step, "of", n.run.state.Config.TotalSteps, "the model", n.whereModelLies())
	} else {
		n.log.Info(message, "step", done.Step, "of", n.run.state.Config.TotalSteps, "digest", done.Digest)
	}
	n.report.emit(done)
	n.ended = true
}

// whereModelLies says where the run's newest recorded model can be got.
func (n *Node) whereModelLies() string {
	c := n.run.state.Model.Checkpoint
	if !c.FromPeers() {
		return "none was recorded but the one that the run began with"
	}
	digest := "digest " + hexOf(c.Digest)[:16]
	if n.keeper.Holds(c) {
		return digest + ", in " + n.folder().Checkpoint(c.Step)
	}
	var places []string
	for _, u := range n.run.state.UploadsOf(c.Digest) {
		places = append(places, u.Place.String())
	}
	if len(places) == 0 {
		return digest + ", in the --checkpoint-dir of members that saved it; none said that it uploaded it"
	}
	return digest + ", as members say at " + strings.Join(places, " or ")
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

// finalModel compares the model held here with a finished run whose last round is given.
// Every counted result is in a model of the last round; that too few others were left to
// report theirs does not make it a wrong one.
func (n *Node) finalModel(last uint32) finalModel {
	c := n.run.state.Model.Checkpoint
	switch {
	case n.models.Held == nil:
		return modelNone
	case !c.FromPeers() && n.models.Held.Origin == c, c.FromPeers() && n.models.Held.Digest == c.Digest:
		return modelRecorded
	case c.FromPeers() && c.Step == n.models.Held.Step, n.models.Held.Step > last:
		return modelOther
	case n.models.Held.Step < last:
		return modelOld
	}
	return modelUnrecorded
}
