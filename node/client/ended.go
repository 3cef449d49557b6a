package client

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/node/modelsync"
	"github.com/psyche-go/psyche/record/event"
)

// errDesynchronised means that the client's model differs from the run's final model.
var errDesynchronised = errors.New("the model differs from the run's")

// ended logs how the run ended for this client. It returns an error if the run ended badly.
func (r *reporter) ended(s *coordinator.State, held core.FinalModel, m *modelsync.Model, saver *keep.Saver) error {
	last := s.Progress.Step - 1 // every round up to it has attested results
	done := event.Finished{Epoch: s.Progress.Epoch, Step: s.Model.Checkpoint.Step, Closed: core.ClosedEarly(s)}
	switch held {
	case core.ModelRecorded:
		done.Step, done.Digest = m.Step, hexOf(m.Digest)
	case core.ModelUnrecorded:
		done.Step, done.Digest, done.Unrecorded = m.Step, hexOf(m.Digest), true
		r.log.Warn("too few members reported the final model for the run to record it; this client's model has all counted results", "step", last)
	case core.ModelOld:
		r.log.Warn("this client does not hold the final model", "step", last)
	case core.ModelOther:
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
	if held == core.ModelNone {
		r.log.Warn("this run is over, and this client got no model of it", "closed", done.Closed, "step", done.Step, "of", s.Config.TotalSteps, "model", saver.Locations(s))
	} else {
		r.log.Info(message, "step", done.Step, "of", s.Config.TotalSteps, "digest", done.Digest)
	}
	r.emit(done)
	return nil
}
